// plan_gauge.h: what a complete plan takes, in much less time than a play: whether it fits memory, a bound
// that no play undercuts, and an estimate that has everything that the simulation has at its cheapest.
//
// Candidates are played in the order of their estimates, and are cut off by their bounds alone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "training/plan/search/search.h"
#include "training/plan/search/search_space.h"
#include "training/plan/search/shape_search.h"

namespace hdt::plan {

// Measures plans of one chunk a stage. It belongs to one search and runs on its thread; everything that is
// passed to the constructor must outlive it. What it has found out about a replica is kept.
class PlanGauge {
 public:
  PlanGauge(const PredictionInputs& inputs, const SearchOptions& options, SearchState& state);

  // Gives each stage as few recomputed layers as fit. False: the plan does not fit, or a node's device kind
  // is not profiled for a stage; the state notes how much is missing.
  bool fit(Plan& plan);
  // Gives the samples of a step out: each next micro-batch to the replica that ends first with it. Replicas
  // that get none are taken out. False: the micro-batches cannot make up the global batch, or a replica does
  // not fit memory.
  bool share_out(Plan& plan);
  // Seconds that no play of the plan undercuts. The plan must fit.
  double bound(const Plan& plan);
  // Seconds that a play is likely to take: the slowest pipeline with its filling, or the port that carries
  // the most messages; then the reductions over the links that they would take, as far as they are exposed.
  // The plan must fit.
  double estimate(const Plan& plan);
  // Index of the node among the cluster's, and of its kind.
  int node_of(const Stage& stage) const { return nodes_.at(stage.node); }
  int kind_of(const Stage& stage) const { return kind_of_[static_cast<size_t>(node_of(stage))]; }

 private:
  // What is known of a replica, for a number of micro-batches in flight.
  struct Measure {
    bool fits = false;
    // By stage: its recomputed layers, and whether of attention only.
    std::vector<std::pair<int, bool>> recomputed;
    // By stage, for the bound: seconds before the first and after the last micro-batch, and of each.
    std::vector<double> around;
    std::vector<double> each;
    double period = 0;
    double fill = 0;
    double last_backward = 0;  // of the longest stage
  };
  // The seconds and bytes of a message from a stage to the next one.
  struct Message {
    double seconds = 0;
    double least_seconds = 0;  // of the smallest message, at the best rate
  };
  // `sharers`: replicas that share the optimizer's states; 1 if each keeps all of them.
  const Measure& measure(const Replica& replica, ScheduleKind schedule, size_t sharers);
  Measure measured(const Replica& replica, ScheduleKind schedule, size_t sharers);
  static size_t sharers(const Plan& plan) {
    return plan.runtime.use_distributed_optimizer ? plan.replicas.size() : 1;
  }
  const RangeCosts* costs(int kind, int tensor_parallel, int micro_batch_size);
  Message message(const Replica& replica, size_t stage) const;
  // By node: seconds in which its port is busy with messages.
  std::vector<double> message_load(const Plan& plan) const;
  // The longest time that a node's port is busy with reductions.
  double reduction_seconds(const Plan& plan) const;

  const PredictionInputs& inputs_;
  const SearchOptions& options_;
  SearchState& state_;
  const std::vector<Node> kinds_;
  std::unordered_map<std::string_view, int> nodes_;
  std::vector<int> kind_of_;  // by node
  std::map<std::vector<int64_t>, Measure> measures_;
};

}  // namespace hdt::plan
