// ring.cc: the ring. Node i sends to node i + 1 only. Every byte crosses every link once in a pass,
// whatever the number of nodes, so the ring moves the fewest bytes on each link, in the most steps.
//
// A pass has n - 1 rounds in which blocks travel round the ring. In round 1 a node sends one block of
// its own; in every later round it forwards the block that it has just received; the block received in
// the last round stays.
//   reduce-scatter  block b starts at node b + 1 and gathers contributions until it ends at node b
//   allgather       block b starts at node b and ends at node b - 1
//
// Contributions to block b land in scratch at block b's own offset, as a node receives each block at
// most once.
//
// Steps are computed, not listed, because there are 4(n - 1) of them for an allreduce. Empty blocks have
// no steps; what counts is a block's position among those that are not empty.
#include <algorithm>
#include <vector>

#include "collectives/algorithms.h"

namespace hdt::collectives {
namespace {

// Allreduce is the pass of a reduce-scatter followed by that of an allgather; the other two are one of them.
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
  // One pass of this node: the blocks that are not empty, from `first` downwards and round. Each is
  // received, then sent; but the first is only sent, and the last (first + 1) is only received.
  struct Pass {
    size_t position = 0;  // in filled_, of the first block of the pass
    size_t steps = 0;
    bool starts_by_send = false;
  };
  // One step of a pass: which block, and what is done with it.
  struct Turn {
    int block;
    bool sends;
    bool first;  // the block starts at this node
  };

  uint64_t length_of(int block) const {
    return problem_.block_offsets[block + 1] - problem_.block_offsets[block];
  }

  // The pass that begins at block `first`, or at the next block below it that is not empty. Then the
  // pass begins with a receive, as this node had nothing to send.
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

  // Half-turns alternate between receive and send; a pass that starts by a send skips the first receive.
  // Blocks are taken in descending order, with the wrap at block 0.
  Turn at(const Pass& pass, size_t index) const {
    const size_t half_turn = index + pass.starts_by_send;
    const size_t back = half_turn / 2;
    const size_t place = (pass.position + filled_.size() - back) % filled_.size();
    return {filled_[place], half_turn % 2 == 1, pass.starts_by_send && back == 0};
  }

  int next() const { return (problem_.me + 1) % problem_.nodes; }
  int previous() const { return (problem_.me + problem_.nodes - 1) % problem_.nodes; }

  // Every partial result is in kOutput but a block's first contribution, which is sent from kInput. No
  // node reads kInput after it has written that range of kOutput, so both may be the same memory.
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
