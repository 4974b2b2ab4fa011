// algorithms.h: the makers of schedules, one for each algorithm, and what they share. schedule.cc
// chooses among them. Internal to collectives.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/hazards.h"
#include "collectives/schedule.h"

namespace hdt::collectives {

// A schedule whose steps are few enough (a logarithm of the nodes, or a few for each node) to be listed once.
class ListedSchedule : public Schedule {
 public:
  std::optional<Step> step(size_t index) const override {
    return index < steps_.size() ? std::optional<Step>(steps_[index]) : std::nullopt;
  }
  uint64_t scratch_length() const override { return scratch_length_; }

  // Adds a step that moves something. A step of length 0 is left out; its counterpart at the peer has
  // the same range and is left out as well, so tags still match.
  void add(const Step& step) {
    if (step.length > 0) add_signal(step);
  }
  // Adds a step of any length, as barriers signal by steps of length 0. Also keeps count of the scratch
  // in use.
  void add_signal(const Step& step) {
    steps_.push_back(step);
    if (written_by(step).area == Area::kScratch || step.kind == StepKind::kRecvReduce) {
      scratch_length_ = std::max(scratch_length_, step.target + step.length);
    }
  }

 private:
  std::vector<Step> steps_;
  uint64_t scratch_length_ = 0;
};

// A range of a chunk, in elements.
struct Range {
  uint64_t offset;
  uint64_t length;
};
// The range of the blocks of nodes from, from + 1, ..., to - 1.
inline Range blocks_of(const Problem& problem, int from, int to) {
  return {problem.block_offsets[from], problem.block_offsets[to] - problem.block_offsets[from]};
}

// True for the collectives whose work is shared out by blocks.
constexpr bool moves_blocks(Collective what) {
  return what == Collective::kAllReduce || what == Collective::kReduceScatter ||
         what == Collective::kAllGather;
}

// The makers. All of them expect problem.nodes >= 2.
std::unique_ptr<Schedule> make_ring(const Problem& problem);
std::unique_ptr<Schedule> make_halving_doubling(const Problem& problem);
std::unique_ptr<Schedule> make_recursive_doubling(const Problem& problem);
// Parts of a tree's half are not shorter than `shortest_chunk` elements. Down to 16 KiB of fp32 shorter
// parts pay by the cost model (10 and 100 Gbit/s Ethernet, 4 to 64 nodes). Below that they lose more to
// what a step costs than they gain by coming earlier.
std::unique_ptr<Schedule> make_double_binary_tree(const Problem& problem, uint64_t shortest_chunk = 4096);
std::unique_ptr<Schedule> make_bruck(const Problem& problem);
std::unique_ptr<Schedule> make_pairwise(const Problem& problem);
std::unique_ptr<Schedule> make_two_level(const Problem& problem);
// For broadcast and reduce.
std::unique_ptr<ListedSchedule> make_chain(const Problem& problem);
std::unique_ptr<ListedSchedule> make_binomial_tree(const Problem& problem);
std::unique_ptr<ListedSchedule> make_ring_barrier(const Problem& problem);
std::unique_ptr<ListedSchedule> make_dissemination_barrier(const Problem& problem);

// True if the algorithm has a form of its own; otherwise its maker returns halving-doubling's schedule.
bool has_recursive_doubling(const Problem& problem);
bool has_double_binary_tree(const Problem& problem);
bool has_bruck(const Problem& problem);
bool has_pairwise(const Problem& problem);
bool has_two_level(const Problem& problem);

// The maximum of kScratch elements that any node uses, if the algorithm has a form of its own, without
// making all nodes' schedules.
uint64_t halving_doubling_scratch(const Problem& problem);
uint64_t recursive_doubling_scratch(const Problem& problem);
uint64_t double_binary_tree_scratch(const Problem& problem);
uint64_t bruck_scratch(const Problem& problem);
uint64_t pairwise_scratch(const Problem& problem);
uint64_t two_level_scratch(const Problem& problem);

}  // namespace hdt::collectives
