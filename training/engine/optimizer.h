// optimizer.h: AdamW over the tensors of a rank, with its state open to checkpoints by the tensors' names.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "training/engine/adamw.h"
#include "training/engine/ownership.h"
#include "training/engine/unit_memory.h"

namespace hdt::training {

// One tensor as a checkpoint keeps it: three spans of equal length, row-major.
struct TensorState {
  const TensorInfo* info = nullptr;  // the unit memory's
  std::span<float> parameters;
  std::span<float> exp_avg;     // AdamW's first moment, in PyTorch's name for it
  std::span<float> exp_avg_sq;  // and the second
  // Whether this rank is the one that writes the tensor; every replica holds the same bits of it.
  bool written_here = false;
};

// Owned by the trainer, used on its thread. The moments are parallel to the parameters, zeros at first. Of
// one step all ranks with a tensor must have the same gradients, so that their states stay equal.
class Optimizer {
 public:
  // `memory` must outlive the optimizer; `sets` and `rank` decide which tensors are written here.
  Optimizer(UnitMemory& memory, const AdamWOptions& options, std::span<const OwnerSet> sets, int rank);

  // The update of step 0, 1, ..., which AdamW's bias correction depends on. The gradients in memory times
  // `gradient_scale` are those of the mean.
  void update(int64_t step, double learning_rate, double gradient_scale);

  // All tensors of this rank, in the order of units and of memory. The spans stay valid as long as the
  // optimizer. Whoever writes other values there does it between steps, and on all owners alike.
  std::span<const TensorState> tensors() const { return tensors_; }

 private:
  UnitMemory& memory_;
  AdamWOptions options_;
  std::vector<float> first_moment_;
  std::vector<float> second_moment_;
  std::vector<TensorState> tensors_;
};

}  // namespace hdt::training
