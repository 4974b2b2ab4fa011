// shape_search.h: the best plan of one shape (search_space.h), given the best of the shapes before.
#pragma once

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

// What is carried from shape to shape.
struct SearchState {
  std::optional<Plan> best;
  double best_seconds = std::numeric_limits<double>::infinity();
  // The best that was played of those whose stages, by replica, are on other device kinds or in other sizes.
  std::optional<Plan> runner_up;
  double runner_up_seconds = std::numeric_limits<double>::infinity();
  int64_t predictions = 0;
  int64_t looks = 0;  // at partial plans
  bool ended_early = false;
  // When nothing fits: the least that is missing, and on which device kind.
  double least_excess = std::numeric_limits<double>::infinity();
  std::string excess_device;
  std::map<std::tuple<int, int, int>, RangeCosts> costs;  // by kind, degree, micro-batch size

  // Takes a played plan. True if it is the best so far.
  bool offer(const PredictionInputs& inputs, Plan plan, double seconds);
};

class ShapeSearch {
 public:
  ShapeSearch(const PredictionInputs& inputs, const SearchOptions& options, const Shape& shape,
              SearchState& state);
  void run();

 private:
  using Split = std::vector<int>;  // layers of each stage

  int64_t micro_batches() const { return options_.global_batch_size / shape_.micro_batch_size; }
  const RangeCosts& costs(int replica, int stage) const;
  static std::pair<int, int> units(int stage, int stages, int first_layer, int layers);
  StageCost stage(int replica, int stage, int first_layer, int layers) const;
  // With as little recomputation as fits; notes what is missing when nothing does.
  std::optional<FittedStage> fitted(int replica, int stage, int first_layer, int layers, int64_t count);
  // Never longer than any step in which the replica has this split and count; infinite if that does not fit.
  double bound(int replica, const Split& split, int64_t count);
  double message_seconds(int replica, int stage) const;
  // Least longest stage (forward and backward of a micro-batch), and its split; by dynamic programming.
  std::pair<double, Split> balanced(int replica) const;
  void try_greedy();
  void give_out(size_t replica, int64_t left, std::vector<int64_t>& counts);
  void choose_splits(size_t replica, const std::vector<int64_t>& counts, std::vector<Split>& splits);
  void extend_split(int replica, int64_t count, int first_layer, Split& split, std::vector<Split>& found);
  bool may_look();
  void play(const std::vector<Split>& splits, const std::vector<int64_t>& counts);

  const PredictionInputs& inputs_;
  const SearchOptions& options_;
  const Shape& shape_;
  SearchState& state_;
  const std::vector<Node> kinds_;
  std::vector<std::pair<double, Split>> balanced_;  // by replica
  std::vector<std::vector<const Node*>> nodes_;     // by replica and stage
};

}  // namespace hdt::plan
