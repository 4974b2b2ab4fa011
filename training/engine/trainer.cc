// trainer.cc: a step: zero the gradients, run the pipeline, reduce, clip, update. Whether a step counts
// is decided from sums that all ranks have, so all ranks decide alike.
#include "training/engine/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
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
  if (options.gradients != NumberType::kFloat32 && options.gradients != type) {
    return Status(Code::kInvalidArgument,
                  fmt::format("gradients in {} of parameters in {}: expected fp32 or the parameters' type",
                              number_type_name(options.gradients), number_type_name(type)));
  }
  if (options.update && type != NumberType::kFloat32) {
    return Status(Code::kInvalidArgument,
                  fmt::format("an update of the caller's: expected parameters in fp32, found {}",
                              number_type_name(type)));
  }
  HDT_RETURN_IF_ERROR(check_shard_options(layout, options.shards));
  if (options.shards.sharded && options.update) {
    return Status(
        Code::kInvalidArgument,
        "sharded optimizer states: expected the engine's optimizer, found an update of the caller's");
  }
  Result<UnitMemory> memory = UnitMemory::create(chunks, messenger, options.gradients);
  if (!memory.is_ok()) return memory.status();
  for (StageCompute* const compute : chunks) {
    for (int unit = compute->units().first; unit < compute->units().end; ++unit)
      compute->initialize(unit, options.seed);
  }
  Result<PipelineRunner> runner =
      PipelineRunner::create(layout, position, options.schedule, chunks, messenger);
  if (!runner.is_ok()) return runner.status();
  return std::unique_ptr<Trainer>(
      new Trainer(layout, messenger, std::move(batches), options, memory.take(), runner.take()));
}

// The order of the members matters: the last three refer to the sets, the memory and the buckets.
Trainer::Trainer(const Layout& layout, Messenger& messenger, BatchReader batches,
                 const TrainerOptions& options, UnitMemory memory, PipelineRunner runner)
    : options_(options),
      messenger_(messenger),
      batches_(std::move(batches)),
      sets_(owner_sets(layout)),
      memory_(std::move(memory)),
      runner_(std::move(runner)),
      buckets_(plan_shards(sets_, memory_, messenger.rank(), options.bucket_elements, options.shards)),
      reducer_(buckets_, sets_, memory_, messenger),
      gatherer_(buckets_, memory_, messenger) {
  if (!options.update) optimizer_.emplace(memory_, options.adamw, sets_, buckets_, messenger.rank());
}

// In the order of the numbers below.
Result<StepResult> Trainer::step(int64_t step, std::span<double> sums) {
  // 1. Backward adds to the gradients, so they start at zero.
  std::ranges::fill(memory_.all_gradients().bytes(), std::byte{0});
  // 2. Forward and backward. The reducer starts buckets from inside the last backward. What
  //    other ranks have updated in the step before may come until the first forward.
  Result<LossSum> loss =
      runner_.run([this, step](int64_t index, std::span<int64_t> tokens) { batches_(step, index, tokens); },
                  [this](int unit) { reducer_.unit_done(unit); }, [this] { return settle(); });
  if (!loss.is_ok()) return loss.status();
  // 3. The gradients of this rank's shards are now sums over their owners.
  HDT_RETURN_IF_ERROR(reducer_.finish());

  // 4. Loss, tokens and the square norm are summed over the world in one small operation.
  //    So are the number of the step and its square, by which all know that it is the same one everywhere:
  //    the mean of squares is larger than the square of the mean otherwise.
  const auto number = static_cast<double>(step);
  const std::array<double, 5> own = {loss.value().loss, static_cast<double>(loss.value().tokens),
                                     counted_square_norm(), number, number * number};
  //    The caller's sums travel behind them.
  std::vector<double> totals(own.begin(), own.end());
  totals.insert(totals.end(), sums.begin(), sums.end());
  HDT_RETURN_IF_ERROR(messenger_.sum_over_world(totals));
  std::ranges::copy(std::span(totals).subspan(own.size()), sums.begin());
  if (totals[4] * messenger_.size() != totals[3] * totals[3]) {
    return Status(Code::kMismatch, fmt::format("rank {} is in step {}, and others are in another one",
                                               messenger_.rank(), step));
  }
  const double tokens = totals[1];
  StepResult result;
  result.loss = totals[0] / tokens;
  result.tokens = static_cast<int64_t>(tokens);
  result.gradient_norm = std::sqrt(totals[2]) / tokens;
  result.learning_rate = learning_rate(options_.learning_rate, step);
  // 5. All ranks see the same totals. If these are not finite, one more operation finds the first rank
  //    whose own part is not.
  if (!std::isfinite(result.loss) || !std::isfinite(result.gradient_norm)) {
    const Result<int> rank = lowest_rank_with(!std::isfinite(own[0]) || !std::isfinite(own[2]), messenger_);
    if (!rank.is_ok()) return rank.status();
    result.diverged = true;
    result.diverged_rank = rank.value();
    return result;
  }
  // 6. The division by the tokens and the clipping are one factor, which the optimizer applies.
  double scale = 1.0 / tokens;
  if (options_.clip_gradient_norm > 0 && result.gradient_norm > options_.clip_gradient_norm) {
    scale *= options_.clip_gradient_norm / result.gradient_norm;
  }
  update(step, result.learning_rate, scale);
  return result;
}

// Owners of what is not cut have the same sums, so the first one counts it. The padding between units is zero
// and adds nothing. Summed in double, as millions of squares would lose digits in float; piece by piece, so
// that the order does not depend on threads.
double Trainer::counted_square_norm() {
  if (!options_.count_gradient_norm) return 0;
  std::vector<TypedSpan> pieces;
  for (const BucketShards& shards : buckets_) {
    if (shards.counts.empty() && sets_[shards.bucket.owner_set].ranks.front() != messenger_.rank()) continue;
    const TypedSpan own = memory_.gradients(shards.bucket.units).subspan(shards.first, shards.count);
    for (size_t first = 0; first < own.size(); first += kPieceElements)
      pieces.push_back(own.subspan(first, std::min(kPieceElements, own.size() - first)));
  }
  std::vector<double> sums(pieces.size());
  options_.for_each_piece(pieces.size(), [&](size_t piece) {
    sums[piece] = with_elements(pieces[piece], [](auto elements) {
      double sum = 0;
      for (const auto element : elements) {
        const auto gradient = static_cast<float>(element);
        sum += double{gradient} * gradient;
      }
      return sum;
    });
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

void Trainer::update(int64_t step, double learning_rate, double gradient_scale) {
  if (options_.update) return options_.update(gradient_scale);
  optimizer_->update(step, learning_rate, gradient_scale, options_.for_each_piece);
  gatherer_.start();
}

Result<WrittenState> Trainer::state_to_write() {
  HDT_RETURN_IF_ERROR(settle());
  return optimizer_->state_to_write(messenger_);
}

}  // namespace hdt::training
