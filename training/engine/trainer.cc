// trainer.cc: zero, run the pipeline, reduce, clip, update.
#include "training/engine/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace hdt::training {

Result<std::unique_ptr<Trainer>> Trainer::create(const Layout& layout, StageCompute& compute,
                                                 Messenger& messenger, BatchReader batches,
                                                 const TrainerOptions& options) {
  const Position position = layout.position_of(messenger.rank());
  if (messenger.size() != layout.world_size() || compute.units() != layout.units_of(position)) {
    return Status(Code::kInvalidArgument, "layout, messenger and compute do not belong together");
  }
  Result<UnitMemory> memory = UnitMemory::create(compute, messenger);
  if (!memory.is_ok()) return memory.status();
  for (int unit = compute.units().first; unit < compute.units().end; ++unit)
    compute.initialize(unit, options.seed);
  Result<PipelineRunner> runner = PipelineRunner::create(layout, position, compute, messenger);
  if (!runner.is_ok()) return runner.status();
  return std::unique_ptr<Trainer>(
      new Trainer(layout, messenger, std::move(batches), options, memory.take(), runner.take()));
}

Trainer::Trainer(const Layout& layout, Messenger& messenger, BatchReader batches,
                 const TrainerOptions& options, UnitMemory memory, PipelineRunner runner)
    : options_(options),
      messenger_(messenger),
      batches_(std::move(batches)),
      sets_(owner_sets(layout)),
      memory_(std::move(memory)),
      runner_(std::move(runner)),
      reducer_(sets_, memory_, messenger, options.bucket_elements),
      first_moment_(memory_.all_parameters().size()),
      second_moment_(memory_.all_parameters().size()) {}

Result<StepResult> Trainer::step(int64_t step) {
  std::ranges::fill(memory_.all_gradients(), 0.0F);
  Result<LossSum> loss =
      runner_.run([this, step](int64_t index, std::span<int64_t> tokens) { batches_(step, index, tokens); },
                  [this](int unit) { reducer_.unit_done(unit); });
  if (!loss.is_ok()) return loss.status();
  HDT_RETURN_IF_ERROR(reducer_.finish());

  const std::array<double, 3> own = {loss.value().loss, static_cast<double>(loss.value().tokens),
                                     counted_square_norm()};
  std::array<double, 3> totals = own;
  HDT_RETURN_IF_ERROR(messenger_.sum_over_world(totals));
  const double tokens = totals[1];
  StepResult result;
  result.loss = totals[0] / tokens;
  result.tokens = static_cast<int64_t>(tokens);
  result.gradient_norm = std::sqrt(totals[2]) / tokens;
  result.learning_rate = learning_rate(options_.learning_rate, step);
  if (!std::isfinite(result.loss) || !std::isfinite(result.gradient_norm)) {
    const Result<int> rank = first_of(!std::isfinite(own[0]) || !std::isfinite(own[2]));
    if (!rank.is_ok()) return rank.status();
    result.diverged = true;
    result.diverged_rank = rank.value();
    return result;
  }
  double scale = 1.0 / tokens;
  if (options_.clip_gradient_norm > 0 && result.gradient_norm > options_.clip_gradient_norm) {
    scale *= options_.clip_gradient_norm / result.gradient_norm;
  }
  update(step, result.learning_rate, scale);
  return result;
}

// The first rank that says `mine`; -1: none does. Collective, as all ranks know that the result is not
// finite.
Result<int> Trainer::first_of(bool mine) {
  std::array<double, 1> greatest = {mine ? static_cast<double>(messenger_.size() - messenger_.rank()) : 0};
  HDT_RETURN_IF_ERROR(messenger_.max_over_world(greatest));
  return greatest[0] == 0 ? -1 : messenger_.size() - static_cast<int>(greatest[0]);
}

// The square norm of the units that this rank counts: those whose first owner it is, so that each counts
// once.
double Trainer::counted_square_norm() {
  double sum = 0;
  for (const OwnerSet& set : sets_) {
    if (set.ranks.front() != messenger_.rank()) continue;
    for (const float gradient : memory_.gradients(set.units)) sum += double{gradient} * gradient;
  }
  return sum;
}

void Trainer::update(int64_t step, double learning_rate, double gradient_scale) {
  for (int unit = memory_.units().first; unit < memory_.units().end; ++unit) {
    const UnitSize size = memory_.size(unit);
    const auto part = [&](size_t first, size_t count, bool decay) {
      const size_t at = memory_.start(unit) + first;
      adamw_update(
          {memory_.all_parameters().subspan(at, count), memory_.all_gradients().subspan(at, count),
           std::span(first_moment_).subspan(at, count), std::span(second_moment_).subspan(at, count)},
          options_.adamw, step + 1, static_cast<float>(learning_rate), static_cast<float>(gradient_scale),
          decay);
    };
    part(0, size.decayed, true);
    part(size.decayed, size.elements - size.decayed, false);
  }
}

}  // namespace hdt::training
