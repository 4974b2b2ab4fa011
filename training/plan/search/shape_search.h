// shape_search.h: finds the best plan of one shape (search_space.h), given the best plan of the shapes
// before.
#pragma once

#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "training/plan/search/recomputation.h"
#include "training/plan/search/search.h"
#include "training/plan/search/search_space.h"

namespace hdt::plan {

// The state that is carried from shape to shape and from schedule to schedule. search() owns it.
struct SearchState {
  std::optional<Plan> best;
  double best_seconds = std::numeric_limits<double>::infinity();
  // The best plan that was played in another shape than that of `best`.
  std::optional<Plan> runner_up;
  double runner_up_seconds = std::numeric_limits<double>::infinity();
  int64_t predictions = 0;
  // Candidates whose bound was below the best step, and which were not played: their estimates were too long.
  int64_t not_played = 0;
  // How many partial plans were looked at.
  int64_t looks = 0;
  // When the search is to end. No value: the budget in plays alone counts.
  std::optional<std::chrono::steady_clock::time_point> deadline;
  // The budget is used up; everything returns as soon as possible.
  bool ended_early = false;
  // For the message when nothing fits: the minimum of bytes missing on a device, and the kind of node.
  double least_excess = std::numeric_limits<double>::infinity();
  std::string excess_device;
  // By kind of node, degree and micro-batch size: costs that all shapes share.
  std::map<std::tuple<int, int, int>, RangeCosts> costs;
  // By the kinds of the stages, the micro-batch size and the degree: the shortest longest stage of a replica,
  // and the split that has it.
  std::map<std::vector<int>, std::pair<double, std::vector<int>>> balanced;

  // By both kinds of nodes, and whether the link is that inside a node.
  std::map<std::tuple<std::string, std::string, bool>, LeftOut> left_out;

  // The fastest plan of one chunk a stage that was played of each shape: the bases of interleaved_search.h.
  // Kept only if `keep_bases`, and only of plans that are not much slower than the best one.
  bool keep_bases = false;
  std::map<std::string, std::pair<double, Plan>> bases;

  // The fastest of `bases`, fastest first; at most `most`.
  std::vector<Plan> fastest_bases(size_t most) const;
  // The same with their seconds.
  std::vector<std::pair<double, Plan>> fastest_played(size_t most) const;
  // Notes a placement that cannot be played.
  void leave_out(const MissingLink& link);
  // Everything that was left out, for the result.
  std::vector<LeftOut> all_left_out() const;
  // The same behind an error; "" if nothing was.
  std::string left_out_suffix() const;
  // Predicts the step of a plan that fits memory, and offers it. Nothing if the budget is used up, the engine
  // does not run the plan, or the plan cannot run at all.
  std::optional<double> play(const PredictionInputs& inputs, const SearchOptions& options, Plan plan);
  // Whether the deadline has passed; never before there is a plan.
  bool out_of_time() const;
  // Takes a played plan and its step. Returns true if it is the best so far.
  bool offer(const PredictionInputs& inputs, Plan plan, double seconds);
};

// Branch and bound in one shape, in three levels: the micro-batches of each replica, the split of each
// replica, and then the plan is played. All references must outlive it.
class ShapeSearch {
 public:
  ShapeSearch(const PredictionInputs& inputs, const SearchOptions& options, const Shape& shape,
              SearchState& state);
  // Plays one plan that is likely to be among the shape's best: the balanced splits, with micro-batches given
  // out greedily. One prediction at most. search() calls it for all shapes first, each with an object of its
  // own, so that the best of these plans cuts off most of every shape.
  void play_first_plan();
  // That plan as it is, without a look at memory and the best step: a base for interleaved_search.h.
  // Nothing in the cases of run(), which notes them.
  std::optional<Plan> first_plan();
  // Searches the whole shape. Does nothing if micro-batches of this size cannot make up the global
  // batch, if there are fewer of them than replicas, or if nodes that talk have no link: that is noted.
  void run();

 private:
  // The first link that every plan of the shape needs and does not have.
  std::optional<MissingLink> missing() const;

  // Whether micro-batches of these sizes may make up the global batch, with one for each replica.
  bool can_be_cut() const;
  // Fills in `balanced_`. False: no plan of the shape is shorter than the best one.
  bool balance();

  using Split = std::vector<int>;  // layers of each stage

  // The part of a stage's optimizer states that it keeps, at most.
  double state_share() const {
    return options_.runtime.use_distributed_optimizer ? 1.0 / static_cast<double>(shape_.replicas.size()) : 1;
  }
  // A lower bound of the part that it updates: a tied matrix may have twice as many owners.
  double least_update_share() const { return state_share() / (inputs_.model.has_tied_unit() ? 2 : 1); }
  int size_of(int replica) const { return shape_.replicas[static_cast<size_t>(replica)].micro_batch_size; }
  const RangeCosts& costs(int replica, int stage) const;
  // The units [first, end) of a stage with `layers` layers from `first_layer` on.
  static std::pair<int, int> units(int stage, int stages, int first_layer, int layers);
  // The cost of such a stage if memory were no question.
  StageCost stage(int replica, int stage, int first_layer, int layers) const;
  // With as little recomputation as fits when the replica has `count` micro-batches. If nothing fits,
  // notes in the state how much is missing.
  std::optional<FittedStage> fitted(int replica, int stage, int first_layer, int layers, int64_t count);
  // Seconds that no step can undercut in which the replica has this split, or begins with it, and
  // `count` micro-batches. Infinite if it does not fit memory.
  double bound(int replica, const Split& split, int64_t count);
  // A lower bound of the seconds of a message to the next stage.
  double message_seconds(int replica, int stage) const;
  // The shortest longest stage (forward and backward of one micro-batch), and the split that has it. By
  // dynamic programming, without regard to memory.
  std::pair<double, Split> balanced(int replica) const;
  // Plays the balanced splits with greedily chosen counts.
  void try_greedy();
  // These counts, by replica; none if micro-batches that are given out so do not make up the global batch.
  std::vector<int64_t> greedy_counts() const;
  // Level 1: tries all numbers of micro-batches for the replicas from `replica` on, which have `left`
  // samples.
  void give_out(size_t replica, int64_t left, std::vector<int64_t>& counts);
  // Level 2: tries all splits for the replicas from `replica` on.
  void choose_splits(size_t replica, const std::vector<int64_t>& counts, std::vector<Split>& splits);
  // Collects all splits that continue `split` and whose bound is below the best step.
  void extend_split(int replica, int64_t count, int first_layer, Split& split, std::vector<Split>& found);
  // Counts a look at a partial plan. False if the budget is used up.
  bool may_look();
  // Level 3: predicts the step of a complete plan, in every order of its replicas if the cluster is small.
  void play(const std::vector<Split>& splits, const std::vector<int64_t>& counts);

  const PredictionInputs& inputs_;
  const SearchOptions& options_;
  const Shape& shape_;
  SearchState& state_;
  const std::vector<Node> kinds_;
  // Replicas come in every order that matters, on the smallest clusters.
  const bool every_order_;
  // The result of balanced() for each replica.
  std::vector<std::pair<double, Split>> balanced_;  // by replica
  std::vector<std::vector<const Node*>> nodes_;     // by replica and stage
};

}  // namespace hdt::plan
