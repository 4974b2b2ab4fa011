// search_space.h: the plans that search looks at, and the costs it needs at hand.
//
// A shape fixes the tensor-parallel degree, the micro-batch size and which devices make which stage; layers
// and micro-batches are still to be given out. All shapes of a cluster: every subset of its workers (a worker
// is a tensor-parallel group on one node), as every sequence of replicas whose numbers of workers of each
// kind do not increase (compared kind by kind). In a replica the workers of one kind follow each other, the
// kinds in every order. Workers of a kind are alike; they are taken in the order of the cluster's nodes.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "training/plan/predict/stage_cost.h"

namespace hdt::plan {

struct ReplicaShape {
  std::vector<std::string> nodes;  // of each stage
  std::vector<int> kinds;          // index into Cluster::node_kinds
};

struct Shape {
  int tensor_parallel = 1;
  int micro_batch_size = 1;
  std::vector<ReplicaShape> replicas;
};

// Calls `visit`, until it returns false, for each shape with at most `layers` stages a replica and at most
// `most_replicas` replicas.
void for_each_shape(const PredictionInputs& inputs, int most_replicas,
                    const std::function<bool(const Shape&)>& visit);

// Costs of unit ranges on one device kind, by sums from the front.
class RangeCosts {
 public:
  RangeCosts(const PredictionInputs& inputs, const std::string& device, int tensor_parallel,
             int micro_batch_size);

  // Without its units and output.
  StageCost range(int first, int end) const;
  // The same with the first `recomputed` layers of the range computed again for their backward.
  StageCost range(int first, int end, int recomputed) const;
  // How many of the units are layers, neither embedding nor head.
  int layers(int first, int end) const;
  // The most that is not kept of a layer if it is recomputed; at least 0.
  int64_t most_saved() const { return most_saved_; }

 private:
  std::vector<StageCost> before_;       // of the units below an index
  std::vector<int64_t> inputs_before_;  // unit_input_bytes of these
  int64_t most_saved_ = 0;
};

}  // namespace hdt::plan
