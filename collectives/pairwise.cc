// pairwise.cc: direct exchange. Every node sends each peer its block at once, to i + 1, i + 2, ...
// (modulo nodes), so that no two nodes begin with the same peer. It moves as few bytes as the ring, with
// one hop for all of them, but a message for each peer.
//
// The reduce-scatter combines the contributions in the order of the nodes, ((c0 + c1) + c2) + ...,
// whatever the block and wherever it ends. So an element's bits depend neither on how an operation is
// cut nor on any timing; deterministic groups rely on that. It also means that a node's own contribution
// is seldom the first operand. Nodes 2, 3, ... copy theirs into scratch, where it waits for its turn as
// the peers' contributions do; the first contribution, node 0's, is received into kOutput.
#include "collectives/algorithms.h"

namespace hdt::collectives {
namespace {

// Builds the list of one node. Lives during make_pairwise() only.
class PairwiseBuilder {
 public:
  explicit PairwiseBuilder(const Problem& problem)
      : problem_(problem), own_(block(problem.me)), schedule_(std::make_unique<ListedSchedule>()) {}

  std::unique_ptr<Schedule> build() {
    if (reduces(problem_.what)) reduce_scatter();
    if (problem_.what != Collective::kReduceScatter) allgather();
    return std::move(schedule_);
  }

 private:
  Range block(int node) const { return blocks_of(problem_, node, node + 1); }
  // The node `ahead` places after this one.
  int peer(int ahead) const { return (problem_.me + ahead) % problem_.nodes; }

  // Where in the owner's scratch the contribution of `node` waits; `of` is the owner's block. Nodes 0
  // and 1 never wait at the same owner: at nodes 2, 3, ... node 0's contribution goes to kOutput, at
  // node 0 its own stays in kInput, and so does node 1's own at node 1. So both share the first place.
  static uint64_t waiting_place(int node, Range of) {
    return static_cast<uint64_t>(std::max(node, 1) - 1) * of.length;
  }

  // Node 0's contribution is the first operand at nodes 2, 3, ... and lands in kOutput there.
  void send_contribution(int to) {
    const Range range = block(to);
    const bool starts_there = problem_.me == 0 && to >= 2;
    schedule_->add({StepKind::kSend, to, Area::kInput, starts_there ? Area::kOutput : Area::kScratch,
                    range.offset, range.length,
                    starts_there ? range.offset : waiting_place(problem_.me, range)});
  }

  // Adds the contribution of `node` to what is held. The held value is the first operand, except at node
  // 1, which holds its own when node 0's comes. The own contribution at nodes 2, 3, ... is combined by a
  // local kReduce.
  void combine(int node, Area& held) {
    const Area into = held == Area::kInput ? Area::kOutput : Area::kInput;
    const bool own = node == problem_.me;
    Step step{own ? StepKind::kReduce : StepKind::kRecvReduce,
              own ? -1 : node,
              held,
              into,
              own_.offset,
              own_.length,
              waiting_place(node, own_)};
    step.peer_first = problem_.me == 1 && node == 0;
    schedule_->add(step);
    held = into;
  }

  // Order: copy the own contribution away, send everything, then combine in the order of the nodes.
  void reduce_scatter() {
    const bool own_waits = problem_.me >= 2;
    if (own_waits) {
      schedule_->add({StepKind::kCopy, -1, Area::kInput, Area::kScratch, own_.offset, own_.length,
                      waiting_place(problem_.me, own_)});
    }
    for (int ahead = 1; ahead < problem_.nodes; ++ahead) send_contribution(peer(ahead));
    Area held = Area::kInput;
    if (own_waits) {
      schedule_->add({StepKind::kRecv, 0, Area::kInput, Area::kOutput, own_.offset, own_.length, 0});
      held = Area::kOutput;
    }
    for (int node = own_waits ? 1 : 0; node < problem_.nodes; ++node) {
      if (own_waits || node != problem_.me) combine(node, held);
    }
    // The result is on the wrong side.
    if (held == Area::kOutput) return;
    schedule_->add({StepKind::kCopy, -1, Area::kInput, Area::kOutput, own_.offset, own_.length, 0});
  }

  // The receives are listed in the order in which the peers send to this node, so the window of the
  // executor holds those that come first.
  void allgather() {
    for (int ahead = 1; ahead < problem_.nodes; ++ahead) {
      schedule_->add({StepKind::kSend, peer(ahead), Area::kOutput, Area::kOutput, own_.offset, own_.length,
                      own_.offset});
    }
    for (int ahead = 1; ahead < problem_.nodes; ++ahead) {
      const int from = peer(problem_.nodes - ahead);
      const Range range = block(from);
      schedule_->add({StepKind::kRecv, from, Area::kInput, Area::kOutput, range.offset, range.length, 0});
    }
  }

  const Problem& problem_;
  const Range own_;
  std::unique_ptr<ListedSchedule> schedule_;
};

}  // namespace

// Between two nodes the exchange is that of every algorithm, but the order of the operands is not.
bool has_pairwise(const Problem& problem) {
  return moves_blocks(problem.what) && (problem.nodes > 2 || (problem.nodes == 2 && reduces(problem.what)));
}

// A place for each contribution but one.
uint64_t pairwise_scratch(const Problem& problem) {
  if (!reduces(problem.what)) return 0;
  uint64_t longest = 0;
  for (int node = 0; node < problem.nodes; ++node) {
    longest = std::max(longest, blocks_of(problem, node, node + 1).length);
  }
  return longest * static_cast<uint64_t>(problem.nodes - 1);
}

std::unique_ptr<Schedule> make_pairwise(const Problem& problem) {
  return has_pairwise(problem) ? PairwiseBuilder(problem).build() : make_halving_doubling(problem);
}

}  // namespace hdt::collectives
