// replica_class.h: ways to make one replica, from which a large cluster's plan is put together
// (class_search.h).
//
// A class is a sequence of stages in which those of a device kind are neighbours, with the layer split of the
// least longest stage that fits memory. For that split: for a given longest stage each stage takes as many
// layers as it can, first to last, which reaches the end if any split does; the least is found by bisection.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "training/plan/predict/stage_cost.h"
#include "training/plan/search/recomputation.h"
#include "training/plan/search/search_space.h"

namespace hdt::plan {

struct ReplicaClass {
  int tensor_parallel = 1;
  int micro_batch_size = 1;
  std::vector<int> kinds;    // of each stage: index into Cluster::node_kinds
  std::vector<int> layers;   // of each stage
  std::vector<int> devices;  // that a replica takes, by kind
  // A step with n micro-batches takes `fill` + n * `period` seconds or somewhat more. The period is the
  // longest stage, or what in-flight micro-batches allow: stage s has p - s of them, each of which passes all
  // later stages and back.
  double period = 0;
  double fill = 0;

  int64_t most_samples(double seconds) const;
};

// What a class is made from.
class ClassMaker {
 public:
  explicit ClassMaker(const PredictionInputs& inputs,
                      ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward, bool recompute = false);

  // (tensor-parallel degree, micro-batch size) pairs that some device kind is profiled for.
  const std::vector<std::pair<int, int>>& variants() const { return variants_; }
  // Tensor-parallel groups of a kind.
  int workers(int kind, int tensor_parallel) const;
  bool profiled(int kind, std::pair<int, int> variant) const;

  // With the best split; nothing if none fits memory.
  std::optional<ReplicaClass> make(std::pair<int, int> variant, const std::vector<int>& kinds) const;
  // Sets period and fill for the split that it has; false: it does not fit.
  bool evaluate(ReplicaClass& made) const;
  // Bytes that are missing on each device in the split that lacks least.
  double least_excess(std::pair<int, int> variant, const std::vector<int>& kinds) const;
  // `layers` of a stage of the class with as few recomputed as fit, in a step with so many micro-batches.
  std::optional<FittedStage> fitted(const ReplicaClass& made, int stage, int first_layer, int layers,
                                    int micro_batches, double extra_bytes = 0) const;

  // All classes of one or two kinds; if none fits, those of more kinds whose numbers of stages are powers of
  // two. Of those that take the same devices with the same first kind, degree and micro-batch size, the one
  // with the shortest period.
  std::vector<ReplicaClass> all() const;
  // Calls `visit` with each sequence of kinds of these.
  void for_each_sequence(std::pair<int, int> variant, bool three_or_more,
                         const std::function<void(const std::vector<int>&)>& visit) const;

  const std::vector<int>& devices() const { return devices_; }  // of the cluster, by kind
  const std::vector<Node>& kinds() const { return kinds_; }

 private:
  const RangeCosts& costs(const ReplicaClass& made, int stage) const;
  // The greedy split; empty if it does not reach the last layer.
  std::vector<int> split(const ReplicaClass& made, double longest, double extra_bytes) const;
  double message_seconds(const ReplicaClass& made, int stage) const;

  const PredictionInputs inputs_;
  const ScheduleKind schedule_;
  const bool recompute_;
  const std::vector<Node> kinds_;
  std::vector<std::pair<int, int>> variants_;
  std::vector<int> devices_;
  std::vector<int> nodes_;                                           // of the cluster, by kind
  std::vector<double> memory_;                                       // by kind: the least of its nodes
  std::vector<std::map<int, int>> workers_;                          // by kind and degree
  std::map<std::pair<int, std::pair<int, int>>, RangeCosts> costs_;  // by kind and variant
};

}  // namespace hdt::plan
