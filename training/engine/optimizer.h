// optimizer.h: AdamW over the shards of a rank, with its state open to checkpoints by the tensors' names.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "training/engine/adamw.h"
#include "training/engine/messenger.h"
#include "training/engine/ownership.h"
#include "training/engine/parallel.h"
#include "training/engine/shards.h"
#include "training/engine/unit_memory.h"

namespace hdt::training {

// One tensor of this rank, row-major.
struct TensorState {
  const TensorInfo* info = nullptr;  // the unit memory's
  TypedSpan parameters;              // whole, as the model computes with them
  // What the update works on, of the elements that this rank updates: of so many, from element `first` on.
  // All elements where the tensor's bucket is not cut; none where the tensor lies in shards of others.
  size_t first = 0;
  // All three are of state_type_of() the parameters' type. The parameters in that type: where `parameters`
  // have it, these are a part of them; else `parameters` are these rounded, so that updates too small for
  // their type add up here.
  TypedSpan master;
  TypedSpan exp_avg;     // AdamW's first moment, in PyTorch's name for it
  TypedSpan exp_avg_sq;  // and the second
};

// What this rank writes into a checkpoint: tensors with all of their masters and moments, which are fp64 if
// the parameters are, and fp32 otherwise. Every tensor is written by one of its owners. The spans are valid
// until the next update, and as long as this object and the optimizer.
struct WrittenState {
  std::vector<TensorState> tensors;
  TypedMemory gathered;  // states of which other ranks keep parts
};

// Writes other parameters into a tensor: `whole` (all of its elements) rounded, and the rank's part of it as
// master. To be done between steps, and on all owners alike.
void set_parameters(const TensorState& tensor, ConstTypedSpan whole);

// Owned by the trainer, used on its thread. It owns the state of this rank's shards and of nothing else: two
// moments for each element that the rank updates, zeros at first, and the master of parameters that are not
// of the states' type. All ranks must update with the sums of the same step, so that their states stay parts
// of one.
class Optimizer {
 public:
  // `memory`, `sets` and `buckets` must outlive the optimizer. `buckets`: those of plan_shards(). The memory
  // must hold the start values, which the masters are taken from.
  Optimizer(UnitMemory& memory, const AdamWOptions& options, const std::vector<OwnerSet>& sets,
            std::span<const BucketShards> buckets, int rank);

  // The update of step 0, 1, ..., which AdamW's bias correction depends on, of this rank's shards. The
  // gradients in memory times `gradient_scale` are those of the mean.
  void update(int64_t step, double learning_rate, double gradient_scale,
              const ForEachPiece& for_each = for_each_piece_here);

  // All tensors of this rank, in the order of units and of memory. The spans stay valid as long as the
  // optimizer. Whoever writes other moments there does it between steps, and on all owners alike.
  std::span<const TensorState> tensors() const { return tensors_; }
  // The elements of one moment, that is of this rank's shards with less than a cache line of padding each.
  size_t state_elements() const { return first_moment_.span().size(); }

  // The tensors that this rank writes. Where buckets are cut, their states are gathered, bucket by bucket:
  // all ranks must call it then, with the parameters whole.
  Result<WrittenState> state_to_write(Messenger& messenger) const;
  // How many tensors that are, and the bytes of one of their states (the master, or a moment) together.
  std::pair<size_t, size_t> size_to_write() const;

 private:
  // Where a tensor lies.
  struct Place {
    size_t bucket = 0;   // index
    size_t element = 0;  // of the bucket
    size_t start = 0;    // of all memory, in elements
    bool written_here = false;
  };
  void add_tensors(size_t bucket);
  // Whether masters are memory of their own.
  bool has_masters() const { return memory_.all_parameters().type() != state_type(); }
  NumberType state_type() const { return state_type_of(memory_.all_parameters().type()); }
  // Updates so many elements of a tensor with the gradients that belong to them, in the states' C++ type.
  template <typename T>
  void update_piece(const TensorState& tensor, size_t first, size_t count, TypedSpan gradients, int64_t step,
                    double learning_rate, double gradient_scale) const;
  // Decides which owner writes which tensor.
  void share_out_writing(const std::vector<OwnerSet>& sets, int rank);

  UnitMemory& memory_;
  AdamWOptions options_;
  std::span<const BucketShards> buckets_;  // in the order of backward
  // The moments of the shards, one shard after the other.
  TypedMemory first_moment_;
  TypedMemory second_moment_;
  // Likewise the masters; empty where the parameters are of the states' type.
  TypedMemory master_;
  std::vector<size_t> moments_;  // where those of a bucket's shard begin, by bucket
  std::vector<TensorState> tensors_;
  std::vector<Place> places_;  // of the tensors
};

}  // namespace hdt::training
