// search_space.h: the plans that the exhaustive search looks at, and the costs that it needs at hand.
//
// A shape fixes the tensor-parallel degree, the micro-batch size of each replica, and which devices make
// which stage. Layers and micro-batches are still to be given out. A worker is a tensor-parallel group on one
// node.
//
// The neighbours' shapes of a cluster (for_each_shape()) are all subsets of its workers, divided in all ways
// into a sequence of replicas whose numbers of workers of each kind do not increase, compared kind by kind;
// other orders of the same replicas are the same plan. In a replica the workers of one kind follow each
// other, and the kinds come in every order. Workers of a kind are taken in the order of the cluster's nodes,
// and all replicas have one micro-batch size.
//
// All shapes (for_each_order()) have the workers of a replica in every order and on every choice of nodes,
// and a micro-batch size for each replica. There are so many of them that only the smallest clusters are
// searched so.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "training/plan/predict/stage_cost.h"

namespace hdt::plan {

// The devices of the cluster.
int64_t num_devices(const Cluster& cluster);
// How many plans may be played instead of `most` on this cluster. A step with ten times the workers takes
// about ten times as long to play, so beyond 2,500 devices there are fewer plans; at least four.
int64_t plays_on(const Cluster& cluster, int64_t most);

// Whether a device kind is profiled for all layers of the model, with this degree and micro-batch size.
bool is_profiled(const PredictionInputs& inputs, const std::string& device, int tensor_parallel,
                 int micro_batch_size);

// The stages of one replica.
struct ReplicaShape {
  std::vector<std::string> nodes;  // of each stage
  std::vector<int> kinds;          // index into Cluster::node_kinds
  int micro_batch_size = 1;
};

// All replicas, with one degree for all of them.
struct Shape {
  int tensor_parallel = 1;
  std::vector<ReplicaShape> replicas;
};

// Calls `visit` for each of the neighbours' shapes with at most one stage a layer in a replica and with at
// most `most_replicas` replicas, until it returns false. The shape is valid during the call only.
void for_each_shape(const PredictionInputs& inputs, int most_replicas,
                    const std::function<bool(const Shape&)>& visit);

// The same for all shapes, the neighbours' ones included. Devices of a node are alike, and so are nodes of
// one kind with as many devices and as much memory: of shapes that differ in these alone most are left out.
void for_each_order(const PredictionInputs& inputs, int most_replicas,
                    const std::function<bool(const Shape&)>& visit);

// Costs of any range of units on one device kind, for one degree and micro-batch size. Sums from the
// front make each answer a difference. Not changed after the constructor.
class RangeCosts {
 public:
  // is_profiled() must hold.
  RangeCosts(const PredictionInputs& inputs, const std::string& device, int tensor_parallel,
             int micro_batch_size);

  // The units [first, end), without StageCost::units and output_bytes.
  StageCost range(int first, int end) const;
  // The same with the first `recomputed` layers of the range computed again for their backward, or their
  // attention, which the profile must have then (has_attention()).
  StageCost range(int first, int end, int recomputed, bool attention_only) const;
  // Whether the profile has the recomputation of attention, of all layers.
  bool has_attention() const { return has_attention_; }
  // How many of the units [first, end) are layers, and neither the embedding nor the head.
  int layers(int first, int end) const;
  // The largest number of bytes that are not kept of a layer if it, or its attention, is recomputed; at least
  // 0.
  int64_t most_saved(bool attention_only) const {
    return attention_only ? most_saved_of_attention_ : most_saved_;
  }

 private:
  // before_[i]: the sum over the units 0 .. i - 1.
  std::vector<StageCost> before_;
  // The same sums of unit_input_bytes().
  std::vector<int64_t> inputs_before_;
  int64_t most_saved_ = 0;
  // The same of attention that is computed again; only zeros where the profile lacks it.
  bool has_attention_ = false;
  std::vector<RecomputedAttention> attention_before_;
  int64_t most_saved_of_attention_ = 0;
  // What the whole model has once where the sums have it twice: a tied matrix.
  double tied_update_ = 0;
  int64_t tied_bytes_ = 0;
};

}  // namespace hdt::plan
