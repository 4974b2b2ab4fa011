// trainer.cc: a step: zero the gradients, run the pipeline, reduce, clip, update. Whether a step counts
// is decided from sums that all ranks have, so all ranks decide alike.
#include "training/engine/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <type_traits>
#include <utility>

namespace hdt::training {

Result<std::unique_ptr<Trainer>> Trainer::create(const Layout& layout, const ModelChunks& chunks,
                                                 Messenger& messenger, BatchReader batches,
                                                 const TrainerOptions& options) {
  // Start values are written before the first step; replicas get the same ones, so nothing is broadcast.
  const Position position = layout.position_of(messenger.rank());
  std::vector<UnitRange> ranges;
  for (const StageCompute* const compute : chunks) ranges.push_back(compute->units());
  if (messenger.size() != layout.world_size() || ranges != layout.ranges_of(messenger.rank())) {
    return Status(Code::kInvalidArgument, "layout, messenger and compute do not belong together");
  }
  const NumberType type = chunks[0].type();
  for (int chunk = 1; chunk < chunks.size(); ++chunk) {
    if (chunks[chunk].type() == type) continue;
    return Status(Code::kInvalidArgument,
                  fmt::format("chunk {} has parameters in {}: expected {}, as chunk 0 has", chunk,
                              number_type_name(chunks[chunk].type()), number_type_name(type)));
  }
  if (!go_together({type, options.gradients})) {
    return Status(Code::kInvalidArgument,
                  fmt::format("gradients in {} of parameters in {}: expected {} or the parameters' type",
                              number_type_name(options.gradients), number_type_name(type),
                              number_type_name(state_type_of(type))));
  }
  // Without norms nobody would see gradients that are too large: those of emulated devices are zeros.
  if (type == NumberType::kFloat16 && !options.loss_scale && options.count_gradient_norm) {
    return Status(
        Code::kInvalidArgument,
        "parameters in fp16: expected a loss scale, without which gradients are too large for fp16");
  }
  if (options.loss_scale && !options.count_gradient_norm) {
    return Status(Code::kInvalidArgument,
                  "a loss scale: expected gradient norms, which show what is too large");
  }
  HDT_RETURN_IF_ERROR(check_shard_options(layout, options.shards));
  Result<UnitMemory> memory = UnitMemory::create(chunks, messenger, options.gradients);
  if (!memory.is_ok()) return memory.status();
  for (StageCompute* const compute : chunks) {
    if (compute->has_tied_unit()) compute->initialize(kTiedUnit, options.seed);
    for (const int unit : compute->units().numbers()) compute->initialize(unit, options.seed);
  }
  Result<PipelineRunner> runner =
      PipelineRunner::create(layout, position, options.schedule, chunks, messenger);
  if (!runner.is_ok()) return runner.status();
  return std::unique_ptr<Trainer>(new Trainer(layout, messenger, std::move(batches), options, memory.take(),
                                              runner.take(), chunks[0].sequence_length()));
}

// The order of the members matters: the last three refer to the sets, the memory and the buckets.
Trainer::Trainer(const Layout& layout, Messenger& messenger, BatchReader batches,
                 const TrainerOptions& options, UnitMemory memory, PipelineRunner runner, int sequence_length)
    : options_(options),
      messenger_(messenger),
      batches_(std::move(batches)),
      sets_(owner_sets(layout)),
      memory_(std::move(memory)),
      runner_(std::move(runner)),
      buckets_(plan_shards(sets_, memory_, messenger.rank(), options.bucket_elements, options.shards)),
      reducer_(buckets_, sets_, memory_, messenger),
      gatherer_(buckets_, memory_, messenger),
      planned_tokens_(static_cast<double>(layout.global_batch_size()) * sequence_length) {
  if (options.loss_scale) scaler_.emplace(*options.loss_scale);
  if (!options.update) optimizer_.emplace(memory_, options.adamw, sets_, buckets_, messenger.rank());
}

Result<LossSum> Trainer::run_pipeline(int64_t step) {
  const StepTimes before = runner_.times();
  // 1. Backward adds to the gradients, so they start at zero.
  {
    const TimedPart timed(times_.optimizer);
    std::ranges::fill(memory_.all_gradients().bytes(), std::byte{0});
  }
  // 2. Forward and backward. The reducer starts buckets from inside the last backward. What
  //    other ranks have updated in the step before may come until the first forward needs it, unit by unit.
  Result<LossSum> loss = runner_.run(
      step, [this, step](int64_t index, std::span<int64_t> tokens) { batches_(step, index, tokens); },
      [this](int unit) { reducer_.unit_done(unit); }, [this](int unit) { return gatherer_.finish(unit); });
  if (!loss.is_ok()) return loss.status();
  times_.compute += runner_.times().compute - before.compute;
  times_.pp += runner_.times().pp - before.pp;
  times_.dp += runner_.times().dp - before.dp;
  // 3. The gradients of this rank's shards are now sums over their owners.
  const TimedPart timed(times_.dp);
  HDT_RETURN_IF_ERROR(reducer_.finish());
  return loss;
}

// In the order of the numbers.
Result<StepResult> Trainer::step(int64_t step, std::span<double> sums) {
  std::optional<TimedPart> in_step(std::in_place, times_.total);
  // The tokens that count are known after the pipeline only. So the loss is divided by those that may count,
  // and the update makes up for the rest. Gradients in memory are those of the sum times this factor.
  const double loss_factor = scaler_ ? scaler_->scale() / planned_tokens_ : 1;
  runner_.set_loss_factor(loss_factor);
  const Result<LossSum> loss = run_pipeline(step);
  if (!loss.is_ok()) return loss.status();
  // 4. Loss, tokens and the square norm are summed over the world in one small operation.
  //    So are the number of the step and its square, by which all know that it is the same one everywhere:
  //    the mean of squares is larger than the square of the mean otherwise.
  const auto number = static_cast<double>(step);
  ExactSum exact_loss;
  ExactSum exact_norm;
  exact_loss.add(loss.value().loss);
  const std::array<double, 5> own = {loss.value().loss, static_cast<double>(loss.value().tokens),
                                     counted_square_norm(exact_norm), number, number * number};
  //    The caller's sums travel behind them. In fp64 exact sums of loss and norm come next, and then a place
  //    for the times of each rank, which is zero on the others.
  in_step.emplace(times_.total);
  std::vector<double> totals(own.begin(), own.end());
  totals.insert(totals.end(), sums.begin(), sums.end());
  const size_t first_exact = totals.size();
  if (is_exact()) {
    for (const ExactSum& exact : {exact_loss, exact_norm}) {
      const auto numbers = exact.numbers();
      totals.insert(totals.end(), numbers.begin(), numbers.end());
    }
  }
  const size_t first_times = totals.size();
  totals.resize(first_times + static_cast<size_t>(messenger_.size()) * StepTimes::kValues);
  std::ranges::copy(
      times_.values(),
      totals.begin() + static_cast<std::ptrdiff_t>(first_times + messenger_.rank() * StepTimes::kValues));
  times_ = StepTimes();
  HDT_RETURN_IF_ERROR(messenger_.sum_over_world(totals));
  std::ranges::copy(std::span(totals).subspan(own.size(), sums.size()), sums.begin());
  if (totals[4] * messenger_.size() != totals[3] * totals[3]) {
    // The caller may abort the group at once, which would end the sum on a rank that does not have it yet. So
    // there is one more operation: who has entered it has the sums. How it ends changes nothing.
    (void)lowest_rank_with(true, messenger_);
    return Status(Code::kMismatch, fmt::format("rank {} is in step {}, and others are in another one",
                                               messenger_.rank(), step));
  }
  if (is_exact()) {
    const auto exact = std::span(totals).subspan(first_exact);
    totals[0] = ExactSum::value_of(exact.first<ExactSum::kNumbers>());
    totals[2] = ExactSum::value_of(exact.subspan<ExactSum::kNumbers, ExactSum::kNumbers>());
  }
  const double tokens = totals[1];
  StepResult result;
  result.loss = totals[0] / tokens;
  result.tokens = static_cast<int64_t>(tokens);
  result.gradient_norm = std::sqrt(totals[2]) / (tokens * loss_factor);
  result.learning_rate = learning_rate(options_.learning_rate, step - skipped_steps_);
  result.loss_scale = scaler_ ? scaler_->scale() : 0;
  for (size_t at = first_times; at < totals.size(); at += StepTimes::kValues)
    result.times.push_back(StepTimes::of(std::span(totals).subspan(at).first<StepTimes::kValues>()));
  // 5. All ranks see the same totals, so all judge them alike.
  HDT_RETURN_IF_ERROR(judge(own[0], own[2], result));
  if (result.diverged || result.skipped) return result;
  // 6. The division by tokens and loss factor and the clipping are one factor, which the optimizer applies.
  double scale = 1.0 / (tokens * loss_factor);
  if (options_.clip_gradient_norm > 0 && result.gradient_norm > options_.clip_gradient_norm) {
    scale *= options_.clip_gradient_norm / result.gradient_norm;
  }
  update(step - skipped_steps_, result.learning_rate, scale);
  return result;
}

// A loss is not scaled before it is computed, so one that is not finite is no matter of the scale. If
// gradients alone are not finite, a smaller scale may help. Otherwise one more operation finds the first rank
// whose own part is not finite.
Status Trainer::judge(double own_loss, double own_square_norm, StepResult& result) {
  result.skipped_steps = skipped_steps_;
  if (std::isfinite(result.loss) && std::isfinite(result.gradient_norm)) {
    if (scaler_) scaler_->succeeded();
    return Status::ok();
  }
  if (std::isfinite(result.loss) && scaler_ && scaler_->overflowed()) {
    result.skipped = true;
    result.skipped_steps = ++skipped_steps_;
    return Status::ok();
  }
  const Result<int> rank =
      lowest_rank_with(!std::isfinite(own_loss) || !std::isfinite(own_square_norm), messenger_);
  if (!rank.is_ok()) return rank.status();
  result.diverged = true;
  result.diverged_rank = rank.value();
  return Status::ok();
}

LossScaleState Trainer::loss_scale_state() const {
  LossScaleState state = scaler_ ? scaler_->state() : LossScaleState();
  state.skipped_steps = skipped_steps_;
  return state;
}

void Trainer::restore_loss_scale(const LossScaleState& state) {
  skipped_steps_ = state.skipped_steps;
  if (scaler_) scaler_->restore(state);
}

// Owners of what is not cut have the same sums, so the first one counts it. The padding between units is zero
// and adds nothing. Summed in double, as millions of squares would lose digits in float; piece by piece, so
// that the order does not depend on threads. Where bits shall not depend on the layout either, which decides
// the pieces, the sum is an exact one.
double Trainer::counted_square_norm(ExactSum& exact) {
  if (!options_.count_gradient_norm) return 0;
  const TimedPart timed(times_.optimizer);
  std::vector<TypedSpan> pieces;
  for (const BucketShards& shards : buckets_) {
    if (shards.counts.empty() && sets_[shards.bucket.owner_set].ranks.front() != messenger_.rank()) continue;
    const TypedSpan own = memory_.gradients(shards.bucket.units).subspan(shards.first, shards.count);
    for (size_t first = 0; first < own.size(); first += kPieceElements)
      pieces.push_back(own.subspan(first, std::min(kPieceElements, own.size() - first)));
  }
  std::vector<double> sums(pieces.size());
  std::vector<ExactSum> exact_sums(is_exact() ? pieces.size() : 0);
  options_.for_each_piece(pieces.size(), [&](size_t piece) {
    with_elements(pieces[piece], [&](auto elements) {
      double sum = 0;
      for (const auto element : elements) {
        const double gradient = static_cast<ComputedAs<std::remove_const_t<decltype(element)>>>(element);
        sum += gradient * gradient;
        if (is_exact()) exact_sums[piece].add(gradient * gradient);
      }
      sums[piece] = sum;
    });
  });
  for (const ExactSum& sum : exact_sums) exact.add(sum);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

void Trainer::update(int64_t step, double learning_rate, double gradient_scale) {
  const TimedPart timed(times_.optimizer);
  if (options_.update) {
    options_.update(gradient_scale, buckets_);
  } else {
    optimizer_->update(step, learning_rate, gradient_scale, options_.for_each_piece);
  }
  gatherer_.start();
}

Result<WrittenState> Trainer::state_to_write() {
  HDT_RETURN_IF_ERROR(settle());
  return optimizer_->state_to_write(messenger_);
}

}  // namespace hdt::training
