// ring.cc: the ring. Node i sends to node i + 1 only. Every byte crosses every link once per pass, whatever
// the number of nodes, so it moves the fewest bytes per link, in the most steps.
//
// A pass: blocks travel round the ring; each node sends one first block of its own, passes on the blocks that
// it receives, the one received before its first block's turn comes again is the last and stays.
//   reduce-scatter  block b starts at node b + 1 and gathers contributions until it ends at node b
//   allgather       block b starts at node b and ends at node b - 1
// Contributions to block b land in scratch at block b's own offset: a node receives each block at most once.
#include <algorithm>
#include <vector>

#include "collectives/algorithms.h"

namespace hdt::collectives {
namespace {

class RingSchedule : public Schedule {
 public:
  explicit RingSchedule(const Problem& problem) : problem_(problem) {
    for (int block = 0; block < problem.nodes; ++block) {
      if (length_of(block) > 0) filled_.push_back(block);
    }
    reduce_scatter_ = pass_from((problem.me + problem.nodes - 1) % problem.nodes);
    allgather_ = pass_from(problem.me);
    if (problem.what == Collective::kAllGather) reduce_scatter_.steps = 0;
    if (problem.what == Collective::kReduceScatter) allgather_.steps = 0;
  }

  std::optional<Step> step(size_t index) const override {
    if (index < reduce_scatter_.steps) return reduce_scatter_step(at(reduce_scatter_, index));
    index -= reduce_scatter_.steps;
    if (index < allgather_.steps) return allgather_step(at(allgather_, index));
    return std::nullopt;
  }

  uint64_t scratch_length() const override { return reduce_scatter_.steps > 0 ? problem_.elements() : 0; }

 private:
  // One pass of this node: the blocks that are not empty, from `first` downwards and round. Each is received,
  // then sent; but the first is only sent, and the last (first + 1) only received.
  struct Pass {
    size_t position = 0;  // in filled_, of the first block of the pass
    size_t steps = 0;
    bool starts_by_send = false;
  };
  struct Turn {
    int block;
    bool sends;
    bool first;  // the block starts at this node
  };

  uint64_t length_of(int block) const {
    return problem_.block_offsets[block + 1] - problem_.block_offsets[block];
  }

  Pass pass_from(int first) const {
    if (filled_.empty()) return {};
    const auto above = std::upper_bound(filled_.begin(), filled_.end(), first);
    Pass pass;
    pass.position = (above == filled_.begin() ? filled_.size() : above - filled_.begin()) - 1;
    pass.starts_by_send = length_of(first) > 0;
    const bool ends_by_receive = length_of((first + 1) % problem_.nodes) > 0;
    pass.steps = 2 * filled_.size() - pass.starts_by_send - ends_by_receive;
    return pass;
  }

  Turn at(const Pass& pass, size_t index) const {
    const size_t half_turn = index + pass.starts_by_send;
    const size_t back = half_turn / 2;
    const size_t place = (pass.position + filled_.size() - back) % filled_.size();
    return {filled_[place], half_turn % 2 == 1, pass.starts_by_send && back == 0};
  }

  int next() const { return (problem_.me + 1) % problem_.nodes; }
  int previous() const { return (problem_.me + problem_.nodes - 1) % problem_.nodes; }

  Step reduce_scatter_step(const Turn& turn) const {
    const uint64_t offset = problem_.block_offsets[turn.block];
    const Area held = turn.first ? Area::kInput : Area::kOutput;
    if (turn.sends) {
      return {StepKind::kSend, next(), held, Area::kScratch, offset, length_of(turn.block), offset};
    }
    return {StepKind::kRecvReduce, previous(), Area::kInput, Area::kOutput, offset,
            length_of(turn.block), offset};
  }

  Step allgather_step(const Turn& turn) const {
    const uint64_t offset = problem_.block_offsets[turn.block];
    if (turn.sends) {
      return {StepKind::kSend, next(), Area::kOutput, Area::kOutput, offset, length_of(turn.block), offset};
    }
    return {StepKind::kRecv, previous(), Area::kInput, Area::kOutput, offset, length_of(turn.block), 0};
  }

  Problem problem_;
  std::vector<int> filled_;  // blocks that are not empty, ascending
  Pass reduce_scatter_;
  Pass allgather_;
};

}  // namespace

std::unique_ptr<Schedule> make_ring(const Problem& problem) {
  switch (problem.what) {
    case Collective::kBroadcast:
    case Collective::kReduce:
      return make_chain(problem);
    case Collective::kBarrier:
      return make_ring_barrier(problem);
    default:
      return std::make_unique<RingSchedule>(problem);
  }
}

}  // namespace hdt::collectives
