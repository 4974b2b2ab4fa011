// halving_doubling.cc: recursive halving (reduce-scatter) and recursive doubling (allgather): 2
// log2(nodes) steps, and for a power of two as few bytes as the ring (Thakur, Rabenseifner, Gropp 2005:
// "Optimization of collective communication operations in MPICH").
//
// Other numbers of nodes are folded. With p the largest power of two and r = nodes - p, nodes 2v and 2v
// + 1 for v < r work as one: the odd one hands its contribution to the even one and gets its result from
// it. So p places take part. Place v is node 2v for v < r, else node v + r. The range of a place is the
// blocks of the nodes it stands for. Ranges of neighbouring places adjoin, so a group of places has one
// contiguous range.
//
// Partial results alternate between kInput and kOutput: a level of halving reads what the level before
// wrote. Each level has its own stretch of scratch: first the fold's, then level by level.
#include <bit>

#include "collectives/algorithms.h"

namespace hdt::collectives {
namespace {

// Builds the list of one node. Lives during make_halving_doubling() only.
class HalvingDoublingBuilder {
 public:
  explicit HalvingDoublingBuilder(const Problem& problem)
      : problem_(problem),
        places_(static_cast<int>(std::bit_floor(static_cast<unsigned>(problem.nodes)))),
        folded_(problem.nodes - places_),
        in_pair_(problem.me < 2 * folded_),
        odd_(in_pair_ && problem.me % 2 == 1),
        place_(in_pair_ ? problem.me / 2 : problem.me - folded_),
        mate_(odd_ ? problem.me - 1 : problem.me + 1),
        schedule_(std::make_unique<ListedSchedule>()) {}

  // Steps: fold in, halve, double, fold out. The odd node of a pair takes part in the first and the last
  // only.
  std::unique_ptr<Schedule> build() {
    if (reduces(problem_.what)) {
      fold_in_contribution();
      if (!odd_) halve();
    } else {
      fold_in_block();
    }
    if (problem_.what != Collective::kReduceScatter && !odd_) double_up();
    if (in_pair_) fold_out();
    return std::move(schedule_);
  }

  // Elements of the scratch of place `place` that the fold and the levels with groups larger than `half`
  // use. So it is also where the level `half` begins; both partners compute the same place.
  uint64_t scratch_before(int place, int half) const {
    uint64_t used = place < folded_ ? problem_.elements() : 0;
    for (int h = places_ / 2; h > half; h /= 2) used += group(place, h).length;
    return used;
  }

 private:
  int node_of(int place) const { return place < folded_ ? 2 * place : place + folded_; }
  Range blocks(int from, int to) const { return blocks_of(problem_, from, to); }
  // Range of the `size` places (a power of two, aligned) among which `place` is. The end may be
  // node_of(places_), which is the number of nodes.
  Range group(int place, int size) const {
    const int base = place & ~(size - 1);
    return blocks(node_of(base), node_of(base + size));
  }

  void send(int peer, Area from, Range range, Area to, uint64_t target) {
    schedule_->add({StepKind::kSend, peer, from, to, range.offset, range.length, target});
  }
  void send_result(int peer, Range range) { send(peer, Area::kOutput, range, Area::kOutput, range.offset); }
  void receive_result(int peer, Range range) {
    schedule_->add({StepKind::kRecv, peer, Area::kInput, Area::kOutput, range.offset, range.length, 0});
  }
  // Adds the contribution of `peer` to what is held, and changes sides.
  void combine(int peer, Range range, uint64_t target) {
    const Area into = held_ == Area::kInput ? Area::kOutput : Area::kInput;
    schedule_->add({StepKind::kRecvReduce, peer, held_, into, range.offset, range.length, target});
    held_ = into;
  }

  Range whole() const { return blocks(0, problem_.nodes); }

  // The odd node sends all that it has; the even one combines. Even nodes use the first stretch of their
  // scratch.
  void fold_in_contribution() {
    if (!in_pair_) return;
    if (odd_) {
      send(mate_, Area::kInput, whole(), Area::kScratch, 0);
    } else {
      combine(mate_, whole(), 0);
    }
  }

  // For an allgather: puts the odd node's block beside the even node's.
  void fold_in_block() {
    if (!in_pair_) return;
    if (odd_) {
      send_result(mate_, blocks(problem_.me, problem_.me + 1));
    } else {
      receive_result(mate_, blocks(mate_, mate_ + 1));
    }
  }

  // Level by level the partner is half as far away, and each partner keeps the half of the range that it
  // belongs to: it sends the other half and combines what comes for its own.
  void halve() {
    for (int half = places_ / 2; half > 0; half /= 2) {
      const int partner = place_ ^ half;
      send(node_of(partner), held_, group(partner, half), Area::kScratch, scratch_before(partner, half));
      combine(node_of(partner), group(place_, half), scratch_before(place_, half));
    }
    // After an even number of contributions the result is on the wrong side.
    if (held_ == Area::kOutput) return;
    const Range own = group(place_, 1);
    schedule_->add({StepKind::kCopy, -1, Area::kInput, Area::kOutput, own.offset, own.length, 0});
  }

  // The levels in reverse: partners exchange what they have, and the range doubles.
  void double_up() {
    for (int half = 1; half < places_; half *= 2) {
      const int partner = place_ ^ half;
      send_result(node_of(partner), group(place_, half));
      receive_result(node_of(partner), group(partner, half));
    }
  }

  // The odd node gets its result: of an allreduce all, of a reduce-scatter its own block, of an
  // allgather all but its own block.
  void fold_out() {
    const int odd_node = odd_ ? problem_.me : mate_;
    if (problem_.what == Collective::kAllReduce) {
      hand_over(whole());
    } else if (problem_.what == Collective::kReduceScatter) {
      hand_over(blocks(odd_node, odd_node + 1));
    } else {
      hand_over(blocks(0, odd_node));
      hand_over(blocks(odd_node + 1, problem_.nodes));
    }
  }
  void hand_over(Range range) {
    if (odd_) {
      receive_result(mate_, range);
    } else {
      send_result(mate_, range);
    }
  }

  const Problem& problem_;
  // p above: the largest power of two that is not above the number of nodes.
  const int places_;
  const int folded_;    // r above: pairs of nodes that work as one
  const bool in_pair_;  // this node is in such a pair
  const bool odd_;      // and is the one that does not take part
  const int place_;     // of the pair or the node
  const int mate_;      // the other node of the pair
  Area held_ = Area::kInput;
  std::unique_ptr<ListedSchedule> schedule_;
};

}  // namespace

std::unique_ptr<Schedule> make_halving_doubling(const Problem& problem) {
  switch (problem.what) {
    case Collective::kBroadcast:
    case Collective::kReduce:
      return make_binomial_tree(problem);
    case Collective::kBarrier:
      return make_dissemination_barrier(problem);
    default:
      return HalvingDoublingBuilder(problem).build();
  }
}

// Blocks may be unequal, so every place is asked.
uint64_t halving_doubling_scratch(const Problem& problem) {
  if (!reduces(problem.what) || problem.nodes == 1) return 0;
  if (problem.what == Collective::kReduce) {  // the root has a child for every bit of nodes - 1
    return std::bit_width(static_cast<unsigned>(problem.nodes - 1)) * problem.elements();
  }
  const HalvingDoublingBuilder builder(problem);
  const int places = static_cast<int>(std::bit_floor(static_cast<unsigned>(problem.nodes)));
  uint64_t most = 0;
  for (int place = 0; place < places; ++place) most = std::max(most, builder.scratch_before(place, 0));
  return most;
}

}  // namespace hdt::collectives
