// job.cc: puts data, model, engine and messenger together, and runs the steps.
//
// Whatever one rank may fail at before the first step is followed by an exchange (all_ready(),
// check_same_run()), so that no rank waits for one that has ended.
#include "tools/hdt-train/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "tools/hdt-train/readiness.h"
#include "tools/hdt-train/reporter.h"
#include "tools/hdt-train/run_identity.h"
#include "tools/hdt-train/text_sample.h"
#include "training/data/batch_sampler.h"
#include "training/data/progress_line.h"
#include "training/engine/hdt_messenger.h"
#include "training/engine/hdt_operation.h"
#include "training/engine/slowed_compute.h"
#include "training/torch/blas_check.h"
#include "training/torch/torch_stage.h"

namespace hdt::tools {
namespace {

using training::format_grouped;

// The layout in words, for the introduction and the picture of the loss.
std::string describe(const training::Layout& layout) {
  std::string text;
  for (int i = 0; i < layout.num_replicas(); ++i) {
    const training::Replica& replica = layout.replica(i);
    text += fmt::format("{}replica {}: {} layers, {} x {} samples", i == 0 ? "" : "; ", i,
                        fmt::join(replica.stage_layers, " + "), replica.num_micro_batches,
                        replica.micro_batch_size);
  }
  return text;
}

// Rank 0 prints this first. It is flushed, as the first step may take long.
void introduce(const TrainFlags& flags, const TokenInput& input, const training::Layout& layout) {
  const auto& shape = flags.shape;
  fmt::print("model: {} parameters, {} layers, hidden {}, sequence {}, vocabulary {}\n",
             format_grouped(shape.parameters()), shape.num_layers, shape.hidden_size, shape.sequence_length,
             shape.vocab_size);
  fmt::print("data: {} tokens from {}, unigram entropy {:.4f} nats per token\n",
             format_grouped(static_cast<int64_t>(input.statistics.tokens)),
             flags.text.empty() ? flags.data_path : flags.text, input.statistics.unigram_entropy);
  fmt::print("layout: {} ranks; {}; {} tokens a step\n", layout.world_size(), describe(layout),
             format_grouped(layout.global_batch_size() * shape.sequence_length));
  std::fflush(stdout);
}

// Warns if torch uses a slow BLAS library. The first rank of each node speaks, so that each node warns
// once.
void warn_of_slow_blas(const Communicator& world) {
  const int node = world.node_of(world.rank());
  for (int before = 0; before < world.rank(); ++before) {
    if (world.node_of(before) == node) return;
  }
  const std::string warning = training::blas_warning(training::blas_library());
  if (!warning.empty()) fmt::print(stderr, "hdt-train: {}\n", warning);
}

// Runs steps until the last one, or until one diverges. `done` counts the complete steps, and `last` is
// the result of the last one that was run.
Status train(const TrainFlags& flags, training::Trainer& trainer, Reporter* reporter,
             training::StepResult& last, int64_t& done) {
  for (; done < flags.train_iters; ++done) {
    const auto begin = std::chrono::steady_clock::now();
    const Result<training::StepResult> result = trainer.step(done);
    if (!result.is_ok()) return result.status();
    last = result.value();
    if (last.diverged) return Status::ok();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (reporter != nullptr) HDT_RETURN_IF_ERROR(reporter->step_done(done + 1, last, taken.count()));
  }
  return Status::ok();
}

// A nan's sign is not shown: it says nothing.
std::string divergence_text(int64_t step, const training::StepResult& result) {
  const auto unsigned_nan = [](double value) { return std::isnan(value) ? std::abs(value) : value; };
  return fmt::format(
      "training diverged at step {}: loss {}, gradient norm {}{}; the parameters stayed those of step {}. "
      "Try a "
      "smaller --lr, more --lr-warmup-iters or a smaller --clip-grad",
      step, unsigned_nan(result.loss), unsigned_nan(result.gradient_norm),
      result.diverged_rank < 0 ? "" : fmt::format(", first on rank {}", result.diverged_rank), step - 1);
}

}  // namespace

Result<std::string> run_job(const TrainFlags& flags, const TokenInput& input, const training::Layout& layout,
                            Communicator& world) {
  training::set_torch_threads(flags.threads);
  // The messenger makes the groups of the layout, so all ranks must come here.
  Result<std::unique_ptr<training::Messenger>> messenger = training::make_hdt_messenger(world, layout);
  if (!messenger.is_ok()) return messenger.status();
  const int rank = messenger.value()->rank();
  // 1. All ranks must mean the same run.
  HDT_RETURN_IF_ERROR(check_same_run(flags, layout, input.statistics, *messenger.value()));
  HDT_RETURN_IF_ERROR(training::status_of([&] { warn_of_slow_blas(world); }));
  // 2. Data.
  const Result<training::BatchSampler> sampler =
      training::BatchSampler::create(input.tokens, {.seed = flags.trainer.seed,
                                                    .sequence_length = flags.shape.sequence_length,
                                                    .global_batch_size = layout.global_batch_size()});
  if (!sampler.is_ok()) {
    return Status(
        sampler.status().code(),
        fmt::format("{}: {}", flags.text.empty() ? "--data-path " + flags.data_path : "--text " + flags.text,
                    sampler.status().message()));
  }
  // 3. The reporter, before the model: what cannot be written must be known now, and not after hours.
  //    Only rank 0 has one.
  std::unique_ptr<Reporter> reporter;
  Status opened;
  if (rank == 0) {
    introduce(flags, input, layout);
    Result<std::unique_ptr<Reporter>> made = Reporter::open(flags);
    opened = made.status();
    if (made.is_ok()) reporter = made.take();
  }
  HDT_RETURN_IF_ERROR(all_ready(opened, world));

  // 4. The model's part of this rank, perhaps slowed down, and the engine.
  const training::Position position = layout.position_of(rank);
  auto compute = training::make_torch_stage(flags.shape, layout.units_of(position));
  if (!flags.slow_down.empty() && flags.slow_down[rank] > 1)
    compute = training::make_slowed_compute(std::move(compute), flags.slow_down[rank]);
  Result<std::unique_ptr<training::Trainer>> trainer = training::Trainer::create(
      layout, *compute, *messenger.value(),
      [&](int64_t step, int64_t index, std::span<int64_t> tokens) {
        sampler.value().sample(static_cast<uint64_t>(step), index, tokens);
      },
      flags.trainer);
  if (!trainer.is_ok()) return trainer.status();
  // 5. The steps.
  const auto begin = std::chrono::steady_clock::now();
  training::StepResult last;
  int64_t done = 0;
  const Status trained = train(flags, *trainer.value(), reporter.get(), last, done);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;

  // 6. The reports. They are written however the run has ended; an error of training is the more
  //    important one.
  const Status written =
      reporter ? reporter->finish(describe(layout), input.statistics.unigram_entropy) : Status::ok();
  HDT_RETURN_IF_ERROR(trained);
  if (last.diverged) return divergence_text(done + 1, last);
  HDT_RETURN_IF_ERROR(written);
  // The last line for the user. The entropy of the text is what a model would reach that knew only how
  // frequent each token is.
  if (reporter) {
    fmt::print("trained {} steps in {}: loss {:.4f}, unigram entropy of the text {:.4f}\n", flags.train_iters,
               training::format_duration(elapsed), last.loss, input.statistics.unigram_entropy);
  }
  // 7. All replicas hold the same parameters, so the stages of replica 0 generate the text.
  if (flags.sample_tokens > 0 && position.replica == 0) {
    const Result<std::string> text = sample_text(flags, layout, *compute, *messenger.value());
    if (!text.is_ok()) return text.status();
    if (rank == 0) fmt::print("sample:\n{}\n", text.value());
  }
  return std::string();
}

}  // namespace hdt::tools
