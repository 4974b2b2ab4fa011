// optimizer.h: AdamW over the shards of a rank, with its state open to checkpoints by the tensors' names.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "training/engine/adamw.h"
#include "training/engine/messenger.h"
#include "training/engine/ownership.h"
#include "training/engine/shards.h"
#include "training/engine/unit_memory.h"

namespace hdt::training {

// One tensor of this rank, row-major.
struct TensorState {
  const TensorInfo* info = nullptr;  // the unit memory's
  std::span<float> parameters;       // whole
  // The moments of the elements that this rank updates: of so many, from element `first` on. All elements
  // where the tensor's bucket is not cut; none where the tensor lies in shards of others.
  size_t first = 0;
  std::span<float> exp_avg;     // AdamW's first moment, in PyTorch's name for it
  std::span<float> exp_avg_sq;  // and the second
};

// What this rank writes into a checkpoint: tensors with all of their moments. Every tensor is written by one
// of its owners. The spans are valid until the next update, and as long as this object and the optimizer.
struct WrittenState {
  std::vector<TensorState> tensors;
  std::unique_ptr<float[]> gathered;  // moments of which other ranks keep parts
};

// Owned by the trainer, used on its thread. It owns the state of this rank's shards and of nothing else: two
// moments for each element that the rank updates, zeros at first. All ranks must update with the sums
// of the same step, so that their states stay parts of one.
class Optimizer {
 public:
  // `memory`, `sets` and `buckets` must outlive the optimizer. `buckets`: those of plan_shards().
  Optimizer(UnitMemory& memory, const AdamWOptions& options, const std::vector<OwnerSet>& sets,
            std::span<const BucketShards> buckets, int rank);

  // The update of step 0, 1, ..., which AdamW's bias correction depends on, of this rank's shards. The
  // gradients in memory times `gradient_scale` are those of the mean.
  void update(int64_t step, double learning_rate, double gradient_scale);

  // All tensors of this rank, in the order of units and of memory. The spans stay valid as long as the
  // optimizer. Whoever writes other values there does it between steps, and on all owners alike.
  std::span<const TensorState> tensors() const { return tensors_; }
  // The elements of one moment, that is of this rank's shards with less than a cache line of padding each.
  size_t state_elements() const { return first_moment_.size(); }

  // The tensors that this rank writes. Where buckets are cut, their moments are gathered, bucket by bucket:
  // all ranks must call it then, with the parameters whole.
  Result<WrittenState> state_to_write(Messenger& messenger) const;

 private:
  // Where a tensor lies.
  struct Place {
    size_t bucket = 0;   // index
    size_t element = 0;  // of the bucket
    bool written_here = false;
  };
  void add_tensors(size_t bucket);
  // Decides which owner writes which tensor.
  void share_out_writing(const std::vector<OwnerSet>& sets, int rank);

  UnitMemory& memory_;
  AdamWOptions options_;
  std::span<const BucketShards> buckets_;  // in the order of backward
  // The moments of the shards, one shard after the other.
  std::vector<float> first_moment_;
  std::vector<float> second_moment_;
  std::vector<size_t> moments_;  // where those of a bucket's shard begin, by bucket
  std::vector<TensorState> tensors_;
  std::vector<Place> places_;  // of the tensors
};

}  // namespace hdt::training
