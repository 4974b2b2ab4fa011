// trainer.h: one rank's part of a training run: the step, from samples to updated parameters.
//
// Every token of the global batch counts the same, whichever replica it falls to: gradients are those of the
// loss summed over tokens, summed over owners, and divided once by the tokens of all replicas. So the update
// is that of one process with the same global batch, to rounding.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "training/engine/adamw.h"
#include "training/engine/compute.h"
#include "training/engine/gradient_reducer.h"
#include "training/engine/layout.h"
#include "training/engine/learning_rate.h"
#include "training/engine/messenger.h"
#include "training/engine/ownership.h"
#include "training/engine/pipeline_runner.h"
#include "training/engine/unit_memory.h"

namespace hdt::training {

struct TrainerOptions {
  uint64_t seed = 0;
  LearningRateOptions learning_rate;
  AdamWOptions adamw;
  double clip_gradient_norm = 1.0;           // 0: no clipping
  size_t bucket_elements = size_t{1} << 20;  // gradients reduced by one operation
};

struct StepResult {
  double loss = 0;  // mean over the tokens of all replicas, before the update
  int64_t tokens = 0;
  double gradient_norm = 0;  // over all parameters, before clipping
  double learning_rate = 0;
  // Loss or gradient norm is nan or infinite. Nothing was updated: the parameters are those of the step
  // before.
  bool diverged = false;
  int diverged_rank = -1;  // the first whose own part of them is not finite; -1: only their sum is
};

class Trainer {
 public:
  // Fills `tokens` with sample `index` of the global batch of `step`; the same on every rank.
  using BatchReader = std::function<void(int64_t step, int64_t index, std::span<int64_t> tokens)>;

  // What is referred to must outlive the trainer. Parameters get their start values.
  static Result<std::unique_ptr<Trainer>> create(const Layout& layout, StageCompute& compute,
                                                 Messenger& messenger, BatchReader batches,
                                                 const TrainerOptions& options);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // All ranks call it with step 0, 1, ...; all get the same result, also that training has diverged, which is
  // known before it reaches the parameters. There is no further step then.
  Result<StepResult> step(int64_t step);

  UnitMemory& memory() { return memory_; }

 private:
  Trainer(const Layout& layout, Messenger& messenger, BatchReader batches, const TrainerOptions& options,
          UnitMemory memory, PipelineRunner runner);
  double counted_square_norm();
  Result<int> first_of(bool mine);
  void update(int64_t step, double learning_rate, double gradient_scale);

  TrainerOptions options_;
  Messenger& messenger_;
  BatchReader batches_;
  std::vector<OwnerSet> sets_;
  UnitMemory memory_;
  PipelineRunner runner_;
  GradientReducer reducer_;
  std::vector<float> first_moment_;
  std::vector<float> second_moment_;
};

}  // namespace hdt::training
