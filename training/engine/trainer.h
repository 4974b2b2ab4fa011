// trainer.h: one rank's part of a training run: the step, from samples to updated parameters.
//
// Every token of the global batch counts the same, whichever replica it falls to. Gradients are those of
// the loss summed over tokens, summed over owners, and divided once by the tokens of all replicas. So
// the update is that of one process with the same global batch, to rounding.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "training/engine/compute.h"
#include "training/engine/gradient_reducer.h"
#include "training/engine/layout.h"
#include "training/engine/learning_rate.h"
#include "training/engine/messenger.h"
#include "training/engine/optimizer.h"
#include "training/engine/ownership.h"
#include "training/engine/parallel.h"
#include "training/engine/parameter_gatherer.h"
#include "training/engine/pipeline_runner.h"
#include "training/engine/shards.h"
#include "training/engine/step_times.h"
#include "training/engine/unit_memory.h"
#include "training/numbers/exact_sum.h"
#include "training/numbers/loss_scaler.h"

namespace hdt::training {

// The same on all ranks.
struct TrainerOptions {
  uint64_t seed = 0;  // of the start values
  LearningRateOptions learning_rate;
  AdamWOptions adamw;
  double clip_gradient_norm = 1.0;  // 0: no clipping
  // The pipeline's. All ranks must have the same one.
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
  // The maximum number of gradients that one operation reduces, unless a unit has more (plan_buckets()).
  size_t bucket_elements = size_t{1} << 20;
  // Of the gradients in memory, in which they are added up over micro-batches and over owners. The type of
  // the compute, or fp32 where that has fewer digits.
  NumberType gradients = NumberType::kFloat32;
  // The loss is scaled before its backward, which parameters in fp16 need; nothing: it is not. Needs
  // count_gradient_norm, which shows what is too large.
  std::optional<LossScaleOptions> loss_scale;
  // How the optimizer's states are shared out among the owners of a unit.
  ShardOptions shards;
  // Updates the parameters in the place of AdamW, if it is set. `gradient_scale`: the factor that makes the
  // gradients in memory those of the mean over all tokens, and clips them. `buckets`: what this rank has to
  // update, which with sharded states is its shards only; the trainer then fetches the others.
  std::function<void(double gradient_scale, std::span<const BucketShards> buckets)> update;
  // False: StepResult::gradient_norm is 0, and nothing is clipped. The gradients of emulated devices are
  // zeros, and summing their squares would take time that these devices do not take.
  bool count_gradient_norm = true;
  // Who sums the norm and updates the parameters. The results do not depend on it.
  ForEachPiece for_each_piece = for_each_piece_here;
};

// The result of a step, the same on all ranks.
struct StepResult {
  double loss = 0;  // mean over the tokens of all replicas, before the update
  int64_t tokens = 0;
  double gradient_norm = 0;  // over all parameters, before clipping
  double learning_rate = 0;  // of this step
  double loss_scale = 0;     // of this step; 0: the loss is not scaled
  // The gradients were too large for their type: nothing was updated, and the loss scale may be smaller from
  // the next step on. Neither the learning rate nor AdamW counts such a step.
  bool skipped = false;
  int64_t skipped_steps = 0;  // since the start of training
  // The loss or the gradient norm is not finite, and no smaller loss scale can help. Nothing was updated: the
  // parameters are those of the step before.
  bool diverged = false;
  // The first rank whose own part is not finite; -1: only the sum of all parts is not.
  int diverged_rank = -1;
  // Of each rank of the world: its time between this step's sum over the world and that of the step before,
  // as far as it was in step(). So the update before this step is in it, and not the one after.
  std::vector<StepTimes> times;
};

// Owns the stage's memory, its pipeline, its reductions and its optimizer. All work is done on the
// caller's thread.
class Trainer {
 public:
  // Fills `tokens` with sample `index` of the global batch of `step`; the same on every rank.
  using BatchReader = std::function<void(int64_t step, int64_t index, std::span<int64_t> tokens)>;

  // Computes (one for each chunk of the rank) and messenger must outlive the trainer. Parameters get their
  // start values. Fails if memory cannot be allocated, or with kInvalidArgument if layout, compute and
  // options do not go together.
  static Result<std::unique_ptr<Trainer>> create(const Layout& layout, const ModelChunks& chunks,
                                                 Messenger& messenger, BatchReader batches,
                                                 const TrainerOptions& options);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Runs step 0, 1, ..., or goes on where a checkpoint was made; all ranks call it for the same one
  // (kMismatch otherwise, and nothing is updated). All get the same result, also that training has diverged,
  // which is found before it reaches the parameters. There is no further step then, nor after a failure.
  // `sums`, as many on every rank, come back summed over all ranks, without an operation of their own.
  Result<StepResult> step(int64_t step, std::span<double> sums = {});

  // With sharded states the parameters that others have updated come in the background, until the first
  // forward of the next step reads them. Waits for all of them. To be called after the last step, and before
  // anybody reads parameters between steps; without sharded states there is nothing to wait for. A trainer
  // that is destroyed without it gives the run up (Operation).
  Status settle() { return gatherer_.finish(); }
  // What this rank writes into a checkpoint between two steps. All ranks call it after the same step. Not
  // with an update of the caller's.
  Result<WrittenState> state_to_write();

  // Ends this rank's messages and sums, so that no rank waits for them. The parameters stay. step() may not
  // be called any more.
  void give_up() { runner_.give_up(), reducer_.give_up(), gatherer_.give_up(); }
  UnitMemory& memory() { return memory_; }
  // What a checkpoint keeps of the loss scale, and of the steps that were skipped. restore_loss_scale() is
  // called before the first step, on all ranks with the same state.
  LossScaleState loss_scale_state() const;
  void restore_loss_scale(const LossScaleState& state);
  // nullptr if the options name another update.
  Optimizer* optimizer() { return optimizer_ ? &*optimizer_ : nullptr; }

 private:
  Trainer(const Layout& layout, Messenger& messenger, BatchReader batches, const TrainerOptions& options,
          UnitMemory memory, PipelineRunner runner, int sequence_length);
  // Adds up the square norm of the gradients that this rank counts: its shards, and of what is not cut the
  // units whose first owner it is. So each gradient is counted once. In fp64 the sum is an exact one.
  double counted_square_norm(ExactSum& exact);
  // Whether loss and norm are the same bits in every layout that makes the same gradients. It costs a tenth
  // of a microsecond a gradient, which is little beside what fp64 costs.
  bool is_exact() { return memory_.all_gradients().type() == NumberType::kFloat64; }
  // Whether the step was skipped because of its gradients; if not, the result says that training has
  // diverged. `own`: the rank's part of loss and square norm.
  Status judge(double own_loss, double own_square_norm, StepResult& result);
  // The pipeline's part of a step, with the reductions; counts its time.
  Result<LossSum> run_pipeline(int64_t step);
  // Updates this rank's shards with AdamW and starts to fetch the others', or updates as the options say.
  void update(int64_t step, double learning_rate, double gradient_scale);

  TrainerOptions options_;
  Messenger& messenger_;
  BatchReader batches_;
  std::vector<OwnerSet> sets_;
  UnitMemory memory_;  // parameters and gradients
  PipelineRunner runner_;
  std::vector<BucketShards> buckets_;
  GradientReducer reducer_;
  ParameterGatherer gatherer_;
  std::optional<Optimizer> optimizer_;  // none with another update
  std::optional<LossScaler> scaler_;    // none where the loss is not scaled
  int64_t skipped_steps_ = 0;
  double planned_tokens_;  // of a step, if all of them count
  StepTimes times_;        // since the last sum over the world
};

}  // namespace hdt::training
