// pairwise.cc: direct exchange. Every node sends each peer its block at once, to i + 1, i + 2, ...
// (modulo nodes), so that no two nodes begin with the same peer. It moves as few bytes as the ring, with
// one hop for all of them, but a message for each peer.
//
// The reduce-scatter gathers the contributions of all nodes at the owner of their block, which combines them
// in one pass in the order of the nodes, ((c0 + c1) + c2) + ... So an element's bits depend neither on who
// owns it, nor on how an operation is cut, nor on any timing. kInput is not written, and kOutput is written
// once, so both may be buffers of the user, and the same one.
//
// For allreduce any blocks will do. Node i sends and receives D (1 + w (n - 2)) of the operation's D bytes,
// if its block is the fraction w of them: nodes with slow links or memory get small blocks
// (owner_weights.h).
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

  // Which of the contributions in the owner's scratch that of `node` is. The owner's own is not there.
  static int place_at(int owner, int node) { return node < owner ? node : node - 1; }
  static uint64_t scratch_of(int owner, int node, Range block) {
    return static_cast<uint64_t>(place_at(owner, node)) * block.length;
  }

  void reduce_scatter() {
    for (int ahead = 1; ahead < problem_.nodes; ++ahead) {
      const int to = peer(ahead);
      const Range range = block(to);
      schedule_->add({StepKind::kSend, to, Area::kInput, Area::kScratch, range.offset, range.length,
                      scratch_of(to, problem_.me, range)});
    }
    for (int ahead = 1; ahead < problem_.nodes; ++ahead) {
      const int from = peer(problem_.nodes - ahead);
      schedule_->add({StepKind::kRecv, from, Area::kInput, Area::kScratch, own_.offset, own_.length,
                      scratch_of(problem_.me, from, own_)});
    }
    Step all{StepKind::kReduce, -1, Area::kInput, Area::kOutput, own_.offset, own_.length, 0};
    all.gathered = problem_.nodes - 1;
    all.place = problem_.me;
    schedule_->add(all);
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
