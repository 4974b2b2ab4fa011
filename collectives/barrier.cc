// barrier.cc: barriers signal by steps of length 0. A send of length 0 waits for every earlier recv of
// its node (hazards.h), so a node passes on only what it knows by then.
#include "collectives/algorithms.h"

namespace hdt::collectives {
namespace {

// The two halves of a signal; areas and offsets have no meaning in them.
Step signal(int peer) { return {StepKind::kSend, peer, Area::kOutput, Area::kOutput, 0, 0, 0}; }
Step await(int peer) { return {StepKind::kRecv, peer, Area::kOutput, Area::kOutput, 0, 0, 0}; }

}  // namespace

// A token goes round the ring twice. When it is back at node 0, every node has started. The second round
// informs the others; it ends at the last node, as node 0 knows already. 2n - 1 messages, one after the
// other.
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

// Dissemination (Hensgen, Finkel, Manber 1988: "Two algorithms for barrier synchronization"): before
// round k a node knows that the 2^k nodes up to and including itself have started, and it informs the
// node 2^k ahead. After ceil(log2 n) rounds every node knows of all.
std::unique_ptr<ListedSchedule> make_dissemination_barrier(const Problem& problem) {
  auto schedule = std::make_unique<ListedSchedule>();
  // 64 bits, as the doubled distance may pass 2^31.
  for (int64_t distance = 1; distance < problem.nodes;
       distance *= 2) {  // 64 bits: the doubled distance may pass 2^31
    schedule->add_signal(signal(static_cast<int>((problem.me + distance) % problem.nodes)));
    schedule->add_signal(await(static_cast<int>((problem.me + problem.nodes - distance) % problem.nodes)));
  }
  return schedule;
}

}  // namespace hdt::collectives
