// bruck.cc: allgather in ceil(log2 nodes) rounds for any number of nodes, with nobody folded (Bruck, Ho,
// Kipnis, Upfal, Weathersby 1997: "Efficient algorithms for all-to-all communications in multiport
// message-passing systems"). Reduce-scatter is its mirror, allreduce is both. It sends no more bytes
// than the ring does.
//
// Allgather has rounds of distance 1, 2, 4, .... Before a round of distance d, node i holds the blocks
// i, i + 1, ..., i + d - 1 (modulo nodes). It sends them to node i - d, as many as that node still
// lacks. Blocks are at their own place in kOutput from the start, so there is no rotation at the end; a
// run of blocks that passes the end of the chunk is two sends. Reduce-scatter is the same, read
// backwards: distances fall, and node i receives contributions to the blocks that it would have sent,
// from the node it would have sent them to.
//
// Partial results alternate between kInput and kOutput, as a step must not overwrite its input. In the
// first round of a reduce-scatter (the longest distance) a node receives fewer blocks than in full ones,
// so blocks change sides at different times, the same on all nodes. A message is cut where its blocks
// are on different sides at either end.
#include <bit>
#include <vector>

#include "collectives/algorithms.h"

namespace hdt::collectives {
namespace {

// Builds the list of one node. Lives during make_bruck() only.
class BruckBuilder {
 public:
  explicit BruckBuilder(const Problem& problem)
      : problem_(problem), combined_(problem.nodes), schedule_(std::make_unique<ListedSchedule>()) {}

  std::unique_ptr<Schedule> build() {
    if (reduces(problem_.what)) reduce_scatter();
    if (problem_.what != Collective::kReduceScatter) allgather();
    return std::move(schedule_);
  }

  // Elements of `node`'s scratch that the contributions of all rounds with a distance greater than
  // `distance` take up. So it is also where those of the round `distance` begin; sender and receiver
  // compute the same place.
  uint64_t scratch_before(int node, int distance) const {
    uint64_t used = 0;
    for (int d = longest(); d > distance; d /= 2) {
      for (int i = 0; i < blocks_sent(d); ++i) used += length_of(wrap(node + i));
    }
    return used;
  }

 private:
  // A run of blocks that is contiguous in the chunk, and whose blocks are all on the same side at either
  // end of a message.
  struct Segment {
    uint64_t offset;
    uint64_t length;
    Area at_sender;
    Area at_receiver;
  };

  // A node's number modulo nodes. `node` may be from -nodes on and below 2 * nodes.
  int wrap(int node) const { return (node + problem_.nodes) % problem_.nodes; }
  uint64_t length_of(int block) const { return blocks_of(problem_, block, block + 1).length; }
  // The longest distance: the largest power of two below the number of nodes.
  int longest() const { return static_cast<int>(std::bit_ceil(static_cast<unsigned>(problem_.nodes)) / 2); }
  // The last round of an allgather sends fewer blocks, if nodes are no power of two.
  int blocks_sent(int distance) const { return std::min(distance, problem_.nodes - distance); }

  // The side on which a node's partial result of the block `ahead` of its own is. Each contribution
  // changes it. As `ahead` counts from the node, the answer is the same on all nodes.
  Area side(int ahead) const { return combined_[ahead] % 2 == 0 ? Area::kInput : Area::kOutput; }

  // The message of blocks first, first + 1, ...; `first` is the receiver's own place in the order. These
  // blocks are `distance` more ahead of the sender's own block than of the receiver's. Block 0 begins a
  // new segment, because it follows the last block in the ring but not in the chunk.
  std::vector<Segment> segments(int first, int distance) const {
    std::vector<Segment> found;
    for (int i = 0; i < blocks_sent(distance); ++i) {
      const int block = wrap(first + i);
      const Segment next{problem_.block_offsets[block], length_of(block), side(i + distance), side(i)};
      if (i > 0 && block != 0 && next.at_sender == found.back().at_sender &&
          next.at_receiver == found.back().at_receiver) {
        found.back().length += next.length;
      } else {
        found.push_back(next);
      }
    }
    return found;
  }

  // Each round sends before it receives, so that a round's sends depend on earlier rounds only.
  void reduce_scatter() {
    for (int distance = longest(); distance > 0; distance /= 2) {
      const int to = wrap(problem_.me + distance);
      uint64_t landing = scratch_before(to, distance);
      for (const Segment& s : segments(to, distance)) {
        schedule_->add({StepKind::kSend, to, s.at_sender, Area::kScratch, s.offset, s.length, landing});
        landing += s.length;
      }
      const int from = wrap(problem_.me - distance);
      landing = scratch_before(problem_.me, distance);
      for (const Segment& s : segments(problem_.me, distance)) {
        const Area into = s.at_receiver == Area::kInput ? Area::kOutput : Area::kInput;
        schedule_->add({StepKind::kRecvReduce, from, s.at_receiver, into, s.offset, s.length, landing});
        landing += s.length;
      }
      for (int ahead = 0; ahead < blocks_sent(distance); ++ahead) ++combined_[ahead];
    }
    // After an even number of contributions the result is on the wrong side.
    if (side(0) == Area::kOutput) return;
    schedule_->add({StepKind::kCopy, -1, Area::kInput, Area::kOutput, problem_.block_offsets[problem_.me],
                    length_of(problem_.me), 0});
  }

  // All blocks are in kOutput now, so that segments() cuts only where the chunk ends.
  void allgather() {
    combined_.assign(problem_.nodes, 1);
    for (int distance = 1; distance < problem_.nodes; distance *= 2) {
      const int to = wrap(problem_.me - distance);
      for (const Segment& s : segments(problem_.me, distance)) {
        schedule_->add({StepKind::kSend, to, Area::kOutput, Area::kOutput, s.offset, s.length, s.offset});
      }
      const int from = wrap(problem_.me + distance);
      for (const Segment& s : segments(from, distance)) {
        schedule_->add({StepKind::kRecv, from, Area::kInput, Area::kOutput, s.offset, s.length, 0});
      }
    }
  }

  const Problem& problem_;
  std::vector<int> combined_;  // contributions to each block so far, by how far it is ahead of the node's own
  std::unique_ptr<ListedSchedule> schedule_;
};

}  // namespace

bool has_bruck(const Problem& problem) { return moves_blocks(problem.what) && problem.nodes > 2; }

// Blocks may be unequal, so every node is asked.
uint64_t bruck_scratch(const Problem& problem) {
  if (!reduces(problem.what)) return 0;
  const BruckBuilder builder(problem);
  uint64_t most = 0;
  for (int node = 0; node < problem.nodes; ++node) most = std::max(most, builder.scratch_before(node, 0));
  return most;
}

std::unique_ptr<Schedule> make_bruck(const Problem& problem) {
  return has_bruck(problem) ? BruckBuilder(problem).build() : make_halving_doubling(problem);
}

}  // namespace hdt::collectives
