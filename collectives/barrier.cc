// barrier.cc: barriers signal by steps of length 0; a send of length 0 waits for every earlier recv of its
// node.
#include "collectives/algorithms.h"

namespace hdt::collectives {
namespace {

Step signal(int peer) { return {StepKind::kSend, peer, Area::kOutput, Area::kOutput, 0, 0, 0}; }
Step await(int peer) { return {StepKind::kRecv, peer, Area::kOutput, Area::kOutput, 0, 0, 0}; }

}  // namespace

// A token goes round the ring twice: back at node 0 it tells that every node has started, and the second
// round (which the last node ends) tells them so.
std::unique_ptr<ListedSchedule> make_ring_barrier(const Problem& problem) {
  auto schedule = std::make_unique<ListedSchedule>();
  const int next = (problem.me + 1) % problem.nodes;
  const int previous = (problem.me + problem.nodes - 1) % problem.nodes;
  if (problem.me != 0) schedule->add_signal(await(previous));
  schedule->add_signal(signal(next));
  schedule->add_signal(await(previous));
  if (next != 0) schedule->add_signal(signal(next));
  return schedule;
}

// Dissemination (Hensgen, Finkel, Manber 1988): before round k, a node knows of the 2^k nodes up to itself;
// it tells the node 2^k ahead.
std::unique_ptr<ListedSchedule> make_dissemination_barrier(const Problem& problem) {
  auto schedule = std::make_unique<ListedSchedule>();
  for (int64_t distance = 1; distance < problem.nodes; distance *= 2) {
    schedule->add_signal(signal(static_cast<int>((problem.me + distance) % problem.nodes)));
    schedule->add_signal(await(static_cast<int>((problem.me + problem.nodes - distance) % problem.nodes)));
  }
  return schedule;
}

}  // namespace hdt::collectives
