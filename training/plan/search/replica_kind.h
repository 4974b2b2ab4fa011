// replica_kind.h: ways to make one replica, from which the plan of a large cluster is put together
// (class_search.h).
//
// A class is a sequence of stages in which those of a device kind are neighbours. Its layer split is the
// one with the shortest longest stage among those that fit memory. It is found by bisection over the
// length of the longest stage: for a given length each stage takes as many layers as it can, from the
// first to the last, and reaches the last layer if any split does.
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

// One way to make a replica.
struct ReplicaKind {
  int tensor_parallel = 1;
  int micro_batch_size = 1;
  // By stage: the kind of its node, as an index into Cluster::node_kinds().
  std::vector<int> kinds;
  std::vector<int> layers;  // of each stage
  // By kind: the devices that one replica takes.
  std::vector<int> devices;
  // A step with n micro-batches takes `fill` + n x `period` seconds, or somewhat more. The period is the
  // time of the longest stage, or the time that the micro-batches in flight allow: stage s of p keeps p
  // - s of them in flight, and each of them passes all later stages and comes back.
  double period = 0;
  double fill = 0;

  // The samples that one replica processes in a step of `seconds`.
  int64_t most_samples(double seconds) const;
};

// Makes classes for one cluster, model, profile and schedule. It holds the costs of all ranges of units
// for each kind and variant. Not changed after the constructor; the inputs' objects must outlive it.
class ClassMaker {
 public:
  // `state_share`: the part of its optimizer states that a stage keeps and updates, at most.
  explicit ClassMaker(const PredictionInputs& inputs,
                      ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward,
                      RecomputeChoice recompute = {}, double state_share = 1);

  // The variants: pairs (tensor-parallel degree, micro-batch size) that are profiled for some device
  // kind with enough devices a node. All functions below take one of these.
  const std::vector<std::pair<int, int>>& variants() const { return variants_; }
  // The number of tensor-parallel groups that the nodes of a kind have room for. The degree must be one
  // that the profile has.
  int workers(int kind, int tensor_parallel) const;
  // Whether the kind can be used with this variant.
  bool profiled(int kind, std::pair<int, int> variant) const;

  // The class of these stages with the best split; nothing if no split fits memory.
  std::optional<ReplicaKind> make(std::pair<int, int> variant, const std::vector<int>& kinds) const;
  // Sets period and fill for the split that `made` has. False: the split does not fit memory.
  bool evaluate(ReplicaKind& made) const;
  // The bytes that each device lacks in the split that lacks the fewest.
  double least_excess(std::pair<int, int> variant, const std::vector<int>& kinds) const;
  // Stage `stage` of the class if it holds `layers` layers from `first_layer` on, with as few of them
  // recomputed as fit, in a step of so many micro-batches. `extra_bytes` are added to each device's
  // memory. Nothing if it does not fit.
  std::optional<FittedStage> fitted(const ReplicaKind& made, int stage, int first_layer, int layers,
                                    int micro_batches, double extra_bytes = 0) const;

  // All classes of one or two kinds. Only if none of those fits: the classes of three or more kinds
  // whose numbers of stages are powers of two. Among classes with the same devices, first kind, degree
  // and micro-batch size, only the one with the shortest period is kept.
  // Ends with those so far when `stop` is true.
  std::vector<ReplicaKind> all(const std::function<bool()>& stop = [] { return false; }) const;
  // Calls `visit` with each sequence of kinds that all() considers.
  void for_each_sequence(std::pair<int, int> variant, bool three_or_more,
                         const std::function<void(const std::vector<int>&)>& visit) const;

  const std::vector<int>& devices() const { return devices_; }  // of the cluster, by kind
  const std::vector<Node>& kinds() const { return kinds_; }

 private:
  // The costs for the stage's kind and the class's variant, which must be profiled.
  const RangeCosts& costs(const ReplicaKind& made, int stage) const;
  // The split in which each stage, from the first on, takes as many layers as fit memory and `longest`
  // seconds. Empty if it does not reach the last layer.
  std::vector<int> split(const ReplicaKind& made, double longest, double extra_bytes) const;
  // Seconds of a message from the stage to the next one when nothing else is on the link.
  double message_seconds(const ReplicaKind& made, int stage) const;

  const PredictionInputs inputs_;
  const ScheduleKind schedule_;
  const RecomputeChoice recompute_;
  const double state_share_;
  const std::vector<Node> kinds_;
  std::vector<std::pair<int, int>> variants_;
  std::vector<int> devices_;
  // The cluster's nodes by kind.
  std::vector<int> nodes_;
  // By kind: the minimum of its nodes, so that a stage fits whichever of them it gets.
  std::vector<double> memory_;
  std::vector<std::map<int, int>> workers_;                          // by kind and degree
  std::map<std::pair<int, std::pair<int, int>>, RangeCosts> costs_;  // by kind and variant
};

}  // namespace hdt::plan
