// search_space.h: the plans that the exhaustive search looks at, and the costs that it needs at hand.
//
// A shape fixes the tensor-parallel degree, the micro-batch size, and which devices make which stage.
// Layers and micro-batches are still to be given out. The shapes of a cluster are all subsets of its
// workers (a worker is a tensor-parallel group on one node), divided in all ways into a sequence of
// replicas whose numbers of workers of each kind do not increase, compared kind by kind; other orders of
// the same replicas are the same plan. In a replica the workers of one kind follow each other, and the
// kinds come in every order. Workers of a kind are alike; they are taken in the order of the cluster's
// nodes.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "training/plan/predict/stage_cost.h"

namespace hdt::plan {

// The stages of one replica.
struct ReplicaShape {
  std::vector<std::string> nodes;  // of each stage
  std::vector<int> kinds;          // index into Cluster::node_kinds
};

// All replicas, with one degree and one micro-batch size for all of them.
struct Shape {
  int tensor_parallel = 1;
  int micro_batch_size = 1;
  std::vector<ReplicaShape> replicas;
};

// Calls `visit` for each shape with at most one stage a layer in a replica and with at most
// `most_replicas` replicas, until it returns false. The shape is valid during the call only.
void for_each_shape(const PredictionInputs& inputs, int most_replicas,
                    const std::function<bool(const Shape&)>& visit);

// Costs of any range of units on one device kind, for one degree and micro-batch size. Sums from the
// front make each answer a difference. Not changed after the constructor.
class RangeCosts {
 public:
  // The profile must have all layer kinds of the model for these arguments.
  RangeCosts(const PredictionInputs& inputs, const std::string& device, int tensor_parallel,
             int micro_batch_size);

  // The units [first, end), without StageCost::units and output_bytes.
  StageCost range(int first, int end) const;
  // The same with the first `recomputed` layers of the range computed again for their backward.
  StageCost range(int first, int end, int recomputed) const;
  // How many of the units [first, end) are layers, and neither the embedding nor the head.
  int layers(int first, int end) const;
  // The largest number of bytes that are not kept of a layer if it is recomputed; at least 0.
  int64_t most_saved() const { return most_saved_; }

 private:
  // before_[i]: the sum over the units 0 .. i - 1.
  std::vector<StageCost> before_;
  // The same sums of unit_input_bytes().
  std::vector<int64_t> inputs_before_;
  int64_t most_saved_ = 0;
};

}  // namespace hdt::plan
