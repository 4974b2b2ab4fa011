// recursive_doubling.cc: allreduce of the whole chunk in log2(nodes) exchanges. These are the fewest
// steps there are, for chunks so small that only steps count. For powers of two; other numbers of nodes,
// and other collectives, take halving-doubling.
//
// In exchange k node i and node i ^ 2^k send each other what they have, and both combine the two, the lower
// node's first. So both come to the same bits (min and max of zeros of different sign depend on the order).
// Partial results alternate between kInput and kOutput; each exchange has its own stretch of scratch.
#include <bit>

#include "collectives/algorithms.h"

namespace hdt::collectives {

bool has_recursive_doubling(const Problem& problem) {
  return problem.what == Collective::kAllReduce && std::has_single_bit(static_cast<unsigned>(problem.nodes));
}

// A whole chunk for each of the log2(nodes) exchanges.
uint64_t recursive_doubling_scratch(const Problem& problem) {
  return problem.elements() * static_cast<uint64_t>(std::bit_width(static_cast<unsigned>(problem.nodes)) - 1);
}

std::unique_ptr<Schedule> make_recursive_doubling(const Problem& problem) {
  if (!has_recursive_doubling(problem)) return make_halving_doubling(problem);
  auto schedule = std::make_unique<ListedSchedule>();
  const uint64_t elements = problem.elements();
  Area have = Area::kInput;
  uint64_t scratch = 0;
  for (int distance = 1; distance < problem.nodes; distance *= 2) {
    const int peer = problem.me ^ distance;
    const Area next = have == Area::kInput ? Area::kOutput : Area::kInput;
    schedule->add({StepKind::kSend, peer, have, Area::kScratch, 0, elements, scratch});
    Step add{StepKind::kRecvReduce, peer, have, next, 0, elements, scratch};
    add.peer_first = peer < problem.me;
    schedule->add(add);
    scratch += elements;
    have = next;
  }
  // After an even number of exchanges the result is on the wrong side.
  if (have == Area::kInput) schedule->add({StepKind::kCopy, -1, Area::kInput, Area::kOutput, 0, elements, 0});
  return schedule;
}

}  // namespace hdt::collectives
