// rooted.cc: broadcast and reduce. A chain keeps every link busy when chunks follow one another (each
// chunk is a schedule of its own, and the engine runs several at a time). A binomial tree is done after
// log2(nodes) steps.
#include <bit>

#include "collectives/algorithms.h"

namespace hdt::collectives {
namespace {

// Steps that move the whole chunk.
Step send_all(const Problem& problem, int peer, Area from, Area to, uint64_t target) {
  return {StepKind::kSend, peer, from, to, 0, problem.elements(), target};
}
Step receive_all(const Problem& problem, int peer) {
  return {StepKind::kRecv, peer, Area::kInput, Area::kOutput, 0, problem.elements(), 0};
}
Step reduce_all(const Problem& problem, int peer, Area from, Area to, uint64_t target) {
  return {StepKind::kRecvReduce, peer, from, to, 0, problem.elements(), target};
}

}  // namespace

// Broadcast goes root -> root + 1 -> ... -> far end, where the nodes between the two come in the order of the
// ring. Reduce goes far end -> root + 1 -> ... -> root, and every node adds its own contribution to what
// comes. The far end is the node before the root in a broadcast, and the one behind it in a reduce, unless
// the problem names another one.
std::unique_ptr<ListedSchedule> make_chain(const Problem& problem) {
  auto schedule = std::make_unique<ListedSchedule>();
  const int nodes = problem.nodes;
  const int root = problem.root;
  const int me = problem.me;
  const bool broadcast = problem.what == Collective::kBroadcast;
  const int neighbour = (root + (broadcast ? nodes - 1 : 1)) % nodes;
  const int far_end = problem.far_end < 0 ? neighbour : problem.far_end;
  // The next node in the ring of all but the far end; `by`: 1 onwards, nodes - 1 backwards.
  const auto beside = [&](int node, int by) {
    const int next = (node + by) % nodes;
    return next == far_end ? (next + by) % nodes : next;
  };
  if (broadcast) {
    if (me != root) schedule->add(receive_all(problem, beside(me == far_end ? root : me, nodes - 1)));
    if (me != far_end) {
      const int next = beside(me, 1);
      schedule->add(send_all(problem, next == root ? far_end : next, Area::kOutput, Area::kOutput, 0));
    }
    return schedule;
  }
  if (me != far_end) {
    const int previous = beside(me, nodes - 1);
    schedule->add(reduce_all(problem, previous == root ? far_end : previous, Area::kInput, Area::kOutput, 0));
  }
  if (me != root) {
    const int next = beside(me == far_end ? root : me, 1);
    schedule->add(send_all(problem, next, me == far_end ? Area::kInput : Area::kOutput, Area::kScratch, 0));
  }
  return schedule;
}

// With q = (node - root) mod nodes: the parent of q is q without its lowest set bit, and its children
// are q + 2^k for every 2^k below that bit. Child k's contribution lands in the k-th stretch of the
// parent's scratch.
std::unique_ptr<ListedSchedule> make_binomial_tree(const Problem& problem) {
  auto schedule = std::make_unique<ListedSchedule>();
  const unsigned nodes = problem.nodes;
  const unsigned q = (problem.me + problem.nodes - problem.root) % problem.nodes;
  const auto node_of = [&](unsigned place) { return static_cast<int>((place + problem.root) % nodes); };
  const unsigned lowest = q == 0 ? std::bit_ceil(nodes) : q & (~q + 1);
  if (problem.what == Collective::kBroadcast) {
    if (q != 0) schedule->add(receive_all(problem, node_of(q - lowest)));
    for (unsigned bit = lowest / 2; bit > 0; bit /= 2) {  // the largest subtree first: it takes longest
      if (q + bit >= nodes) continue;
      schedule->add(send_all(problem, node_of(q + bit), Area::kOutput, Area::kOutput, 0));
    }
    return schedule;
  }
  // Reduce takes the smallest subtree first: its contribution is ready first.
  Area held = Area::kInput;
  for (unsigned bit = 1; bit < lowest && q + bit < nodes; bit *= 2) {
    const Area into = held == Area::kInput ? Area::kOutput : Area::kInput;
    schedule->add(
        reduce_all(problem, node_of(q + bit), held, into, std::countr_zero(bit) * problem.elements()));
    held = into;
  }
  if (q != 0) {
    const uint64_t target = std::countr_zero(lowest) * problem.elements();
    schedule->add(send_all(problem, node_of(q - lowest), held, Area::kScratch, target));
  } else if (held == Area::kInput) {
    schedule->add({StepKind::kCopy, -1, Area::kInput, Area::kOutput, 0, problem.elements(), 0});
  }
  return schedule;
}

}  // namespace hdt::collectives
