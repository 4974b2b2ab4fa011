// job.cc: puts data, model, engine and messenger together, and runs the steps.
//
// Whatever one rank may fail at before the first step is followed by an exchange (all_ready(),
// check_same_run()), so that no rank waits for one that has ended.
#include "tools/hdt-train/job.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "base/available_memory.h"
#include "tools/hdt-train/acceleration.h"
#include "tools/hdt-train/agreement.h"
#include "tools/hdt-train/census_folder.h"
#include "tools/hdt-train/evaluating.h"
#include "tools/hdt-train/introduction.h"
#include "tools/hdt-train/lost_rank.h"
#include "tools/hdt-train/memory_check.h"
#include "tools/hdt-train/plan_layout.h"
#include "tools/hdt-train/pretrained.h"
#include "tools/hdt-train/reporter.h"
#include "tools/hdt-train/resume.h"
#include "tools/hdt-train/run_identity.h"
#include "tools/hdt-train/run_summary.h"
#include "tools/hdt-train/saving.h"
#include "tools/hdt-train/text_sample.h"
#include "tools/hdt-train/world_watch.h"
#include "training/data/blended_sampler.h"
#include "training/data/progress_line.h"
#include "training/engine/hdt_messenger.h"
#include "training/engine/hdt_operation.h"
#include "training/engine/slowed_compute.h"
#include "training/engine/weight_check.h"
#include "training/torch/blas_check.h"
#include "training/torch/parallel.h"
#include "training/torch/tensor_names.h"
#include "training/torch/torch_stage.h"

namespace hdt::tools {
namespace {

// The rank's parts of the model, first chunk first, perhaps slowed down.
using OwnedChunks = std::vector<std::unique_ptr<training::TextCompute>>;

OwnedChunks make_chunks(const TrainFlags& flags, const training::Layout& layout, int rank) {
  OwnedChunks chunks;
  training::Position position = layout.position_of(rank);
  for (const training::UnitRange& units : layout.ranges_of(rank)) {
    auto compute = training::make_torch_stage(
        flags.shape, units,
        {.recomputed_layers = recomputed_layers(flags, layout, position),
         .recomputed_attentions = recomputed_attentions(flags, layout, position),
         .type = flags.type,
         .dropout = {flags.dropout.attention, flags.dropout.hidden, flags.trainer.seed}});
    if (!flags.slow_down.empty() && flags.slow_down[rank] > 1)
      compute = training::make_slowed_compute(std::move(compute), flags.slow_down[rank]);
    chunks.push_back(std::move(compute));
    ++position.chunk;
  }
  return chunks;
}

training::ChunksOf<training::TextCompute> chunks_of(const OwnedChunks& owned) {
  std::vector<training::TextCompute*> chunks;
  for (const auto& compute : owned) chunks.push_back(compute.get());
  return training::ChunksOf<training::TextCompute>(std::move(chunks));
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

// Each step frees and takes the same tensors again. The C library would give the large ones back to the
// kernel, which clears their pages each time they are touched anew: up to 5 % of a step.
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

// The parts that the steps work with. The reporter is there on rank 0 only, and saving with --save only.
struct Run {
  const TrainFlags& flags;
  const training::Layout& layout;
  Communicator& world;
  training::Trainer& trainer;
  training::Messenger& messenger;
  Reporter* reporter;
  Saving* saving;
  Evaluating& evaluating;
  RunSoFar& so_far;
  std::string loaded;  // the checkpoint that the run has gone on from, or ""

  std::string newest_checkpoint() const { return saving != nullptr ? saving->newest() : loaded; }
  Status failed_in(int64_t step, const Status& failure) const {
    return failure_of_step(step, failure, layout, world, newest_checkpoint());
  }
  // Runs `work` of a step, and says which step has failed. A token that the model does not know is this
  // rank's own failure; the others lose this rank.
  template <typename Work>
  auto in_step(int64_t step, const Work& work) const -> decltype(work()) {
    try {
      auto result = work();
      if (result.is_ok()) return result;
      return failed_in(step, result.status());
    } catch (const ForeignToken& foreign) {
      trainer.give_up();
      return Status(Code::kInvalidArgument,
                    fmt::format("training ended in step {}: {}", step, foreign.what()));
    }
  }
};

// How the steps have ended.
struct Outcome {
  int64_t done = 0;           // complete steps, from the start of training
  training::StepResult last;  // of the last step that was run
  // What --check-weights has found after the last step.
  std::optional<training::WeightDifference> difference;
  bool stopped = false;  // by SIGTERM
  // How long this rank has spent on checkpoints, and not on training.
  std::chrono::duration<double> checkpoints{0};
};

// Whether all replicas hold the same model after `done` steps, if this is a step to look.
Result<std::optional<training::WeightDifference>> check_weights(const Run& run, int64_t done) {
  if (run.flags.check_weights == 0 || done % run.flags.check_weights != 0)
    return std::optional<training::WeightDifference>();
  HDT_RETURN_IF_ERROR(run.trainer.settle());
  return training::find_weight_difference(run.layout, run.trainer.memory(), run.messenger);
}

// A step that is done, and what has come back of the sums that travel with it.
struct StepWithSums {
  training::StepResult result;
  std::array<double, Saving::kSums> saving = {};
  std::vector<double> peak_memory;  // of each rank, in bytes; 0: not known
};

// This rank's part of the sums of saving, and its peak memory, travel with the step's own sums.
Result<StepWithSums> step_with_sums(const Run& run, int64_t step) {
  StepWithSums done;
  std::vector<double> sums(Saving::kSums + static_cast<size_t>(run.world.size()));
  if (run.saving != nullptr) std::ranges::copy(run.saving->sums(), sums.begin());
  sums[Saving::kSums + static_cast<size_t>(run.world.rank())] =
      static_cast<double>(peak_memory_bytes().value_or(0));
  const Result<training::StepResult> result =
      run.in_step(step + 1, [&] { return run.trainer.step(step, sums); });
  if (!result.is_ok()) return result.status();
  done.result = result.value();
  std::copy_n(sums.begin(), Saving::kSums, done.saving.begin());
  done.peak_memory.assign(sums.begin() + Saving::kSums, sums.end());
  return done;
}

// Adds the time that `work` takes to `sum`.
template <typename Work>
auto timed(std::chrono::duration<double>& sum, const Work& work) -> decltype(work()) {
  const auto begin = std::chrono::steady_clock::now();
  auto result = work();
  sum += std::chrono::steady_clock::now() - begin;
  return result;
}

// Runs steps until the last one, until one diverges or replicas differ, or until SIGTERM, and then saves.
Status train(const Run& run, Outcome& outcome) {
  const int64_t first = outcome.done;
  // A step's time begins where the one before has ended, so that the copy for a checkpoint is in it.
  auto begin = std::chrono::steady_clock::now();
  while (outcome.done < run.flags.train_iters) {
    const Result<StepWithSums> step = step_with_sums(run, outcome.done);
    if (!step.is_ok()) return step.status();
    outcome.last = step.value().result;
    if (outcome.last.diverged) break;
    ++outcome.done;
    const auto end = std::chrono::steady_clock::now();
    const std::chrono::duration<double> taken = end - std::exchange(begin, end);
    run.so_far.step_done(outcome.done, outcome.last.times, taken);
    if (run.reporter != nullptr)
      HDT_RETURN_IF_ERROR(
          run.reporter->step_done(outcome.done, outcome.last, taken.count(), step.value().peak_memory));
    // Before a checkpoint is begun: a model that differs is not worth one.
    const auto checked = check_weights(run, outcome.done);
    if (!checked.is_ok()) return run.failed_in(outcome.done, checked.status());
    outcome.difference = checked.value();
    if (outcome.difference) break;
    if (run.saving != nullptr) {
      const Result<bool> stop = timed(outcome.checkpoints, [&] {
        return run.saving->step_done(outcome.done, step.value().saving, run.trainer);
      });
      if (!stop.is_ok()) return run.failed_in(outcome.done, stop.status());
      outcome.stopped = stop.value();
    }
    // After the checkpoint has begun, which is written meanwhile. A machine that is wanted back is not kept.
    if (outcome.stopped) break;
    const Result<bool> evaluated =
        run.in_step(outcome.done, [&] { return run.evaluating.step_done(outcome.done); });
    if (!evaluated.is_ok()) return evaluated.status();
    if (evaluated.value()) begin = std::chrono::steady_clock::now();
  }
  // Whoever uses the parameters from here on needs all of them.
  const Status whole = run.trainer.settle();
  if (!whole.is_ok()) return run.failed_in(outcome.done, whole);
  if (run.saving == nullptr || outcome.done == first) return Status::ok();
  // A step that has diverged has changed nothing, but it is not worth a checkpoint; the one under way is.
  const bool is_good = !outcome.last.diverged && !outcome.difference;
  const Status saved = timed(outcome.checkpoints, [&] {
    return is_good ? run.saving->finish(outcome.done, run.trainer) : run.saving->settle();
  });
  return saved.is_ok() ? saved : run.failed_in(outcome.done, saved);
}

// A nan's sign is not shown: it says nothing.
std::string divergence_text(int64_t step, const training::StepResult& result, const std::string& checkpoint) {
  const auto unsigned_nan = [](double value) { return std::isnan(value) ? std::abs(value) : value; };
  return fmt::format(
      "training diverged at step {}: loss {}, gradient norm {}{}{}; the parameters stayed those of step {}. "
      "{}"
      "Try a smaller --lr, more --lr-warmup-iters or a smaller --clip-grad",
      step, unsigned_nan(result.loss), unsigned_nan(result.gradient_norm),
      result.loss_scale == 0 ? "" : fmt::format(", with the loss scale {}", result.loss_scale),
      result.diverged_rank < 0 ? "" : fmt::format(", first on rank {}", result.diverged_rank), step - 1,
      checkpoint.empty() ? "" : fmt::format("The newest checkpoint is {}. ", checkpoint));
}

std::string difference_text(int64_t step, const training::WeightDifference& difference,
                            const training::Layout& layout, const std::string& checkpoint) {
  return fmt::format(
      "after step {} the replicas hold different models: tensor {} of {} differs from that of {}. It was the "
      "same when it was last compared, so one of both has a fault (memory, device, network or software). {}",
      step, difference.tensor, place_text(difference.rank, layout), place_text(difference.other, layout),
      checkpoint.empty() ? "There is no checkpoint" : fmt::format("The newest checkpoint is {}", checkpoint));
}

// Which checkpoint a rank has found, in words that differ if two have found different ones.
std::string identity_of(const std::optional<training::Checkpoint>& resume) {
  if (!resume) return "";
  return fmt::format("step {}, tensors that begin with SHA-256 {}", resume->state().step,
                     resume->tensors().empty() ? "none" : resume->tensors().begin()->second.hash);
}

// How the run has ended. The entropy of the text is what a model would reach that knew only how frequent
// each token is.
void sum_up(const TrainFlags& flags, const TokenInput& input, const Outcome& outcome, int64_t steps,
            std::chrono::duration<double> elapsed) {
  if (steps == 0) {
    fmt::print("nothing to train: the checkpoint is of step {}, and --train-iters is {}\n", outcome.done,
               flags.train_iters);
    return;
  }
  if (outcome.stopped)
    fmt::print("stopped by SIGTERM after step {} of {}\n", outcome.done, flags.train_iters);
  const double entropy = input.unigram_entropy();
  fmt::print("trained {} steps in {}: loss {:.4f}{}\n", steps, training::format_duration(elapsed),
             outcome.last.loss,
             std::isnan(entropy) ? "" : fmt::format(", unigram entropy of the text {:.4f}", entropy));
}

// The summary of the steps, and what the devices have gained by working together.
Status print_summary(const TrainFlags& flags, const training::Layout& layout, const RunSummary& summary,
                     const DescribedDevices* devices, std::chrono::duration<double> elapsed,
                     const Outcome& outcome) {
  if (summary.steps() == 0) return Status::ok();
  fmt::print("{}", summary.text(layout, elapsed, outcome.checkpoints));
  if (devices == nullptr) {
    if (layout.world_size() > 1)
      fmt::print("acceleration ratio: not known without --plan and --acceleration-profile\n");
    return Status::ok();
  }
  const Result<std::string> text = acceleration_of_run(*devices, flags, layout, summary);
  if (!text.is_ok()) return text.status();
  fmt::print("{}", text.value());
  return Status::ok();
}

}  // namespace

Result<std::string> run_job(const TrainFlags& flags, const TokenInput& input, const training::Layout& layout,
                            Origin origin, RunSoFar& so_far, Communicator& world) {
  std::optional<training::Checkpoint>& resume = origin.resume;
  training::set_torch_threads(flags.threads);
  keep_freed_memory();
  // The messenger makes the groups of the layout, so all ranks must come here. fp64 is there to compare
  // layouts to the last bit, so the order of its sums must not depend on them.
  Result<std::unique_ptr<training::Messenger>> messenger =
      training::make_hdt_messenger(world, layout, flags.type == training::NumberType::kFloat64);
  if (!messenger.is_ok()) return messenger.status();
  const int rank = messenger.value()->rank();
  // 1. All ranks must mean the same run.
  HDT_RETURN_IF_ERROR(
      check_same_run(flags, layout, input.identity(), identity_of(resume), *messenger.value()));
  HDT_RETURN_IF_ERROR(training::status_of([&] { warn_of_slow_blas(world); }));
  // 2. Data.
  const Result<training::BlendedSampler> sampler =
      make_sampler(flags, input, training::DataPart::kTraining, layout.global_batch_size());
  if (!sampler.is_ok()) return sampler.status();
  //    A part that is too short for an evaluation must be known now, too.
  for (const training::DataPart part : {training::DataPart::kValidation, training::DataPart::kTest}) {
    if (flags.split.weight(part) > 0 && flags.eval_iters > 0)
      HDT_RETURN_IF_ERROR(make_sampler(flags, input, part, layout.global_batch_size()).status());
  }
  HDT_RETURN_IF_ERROR(all_ready(check_memory(flags, layout, world), world));
  // 3. The outputs, before the model: what cannot be written must be known now, and not after hours. Only
  //    rank 0 has a reporter.
  std::unique_ptr<Reporter> reporter;
  Status opened;
  std::unique_ptr<DescribedDevices> devices;  // with --acceleration-profile
  if (rank == 0) {
    introduce(flags, input, layout);
    Result<std::unique_ptr<Reporter>> made =
        Reporter::open(flags, layout, resume.has_value() || so_far.losses > 0);
    opened = made.status();
    if (made.is_ok()) reporter = made.take();
    if (opened.is_ok() && !flags.acceleration.profile.empty()) {
      Result<std::unique_ptr<DescribedDevices>> read = read_devices_of_run(flags);
      opened = read.status();
      if (read.is_ok()) devices = read.take();
    }
  }
  HDT_RETURN_IF_ERROR(all_ready(opened, world));
  const std::string loaded = resume ? resume->folder() : "";
  std::unique_ptr<Saving> saving;
  std::unique_ptr<WorldWatch> watch;  // with --elastic
  if (!flags.save.empty()) {
    training::TrainingState state;
    state.seed = flags.trainer.seed;
    state.fingerprint = run_fingerprint(flags, input, layout);
    state.settings = run_settings(flags);
    Result<std::unique_ptr<Saving>> made =
        Saving::start(flags, state, layout.global_batch_size(), loaded, so_far.losses > 0, world);
    if (!made.is_ok()) return made.status();
    saving = made.take();
    if (flags.elastic && !so_far.census) {
      Result<std::unique_ptr<training::Census>> census = open_census(flags.save, world);
      if (!census.is_ok()) return census.status();
      so_far.census = census.take();
    }
    if (flags.elastic) {
      // From here on the watch begins it again. The other way round, it could begin before this.
      so_far.census->rest();
      Result<std::unique_ptr<WorldWatch>> started =
          WorldWatch::start(world, *so_far.census, *messenger.value());
      HDT_RETURN_IF_ERROR(all_ready(started.status(), world));
      watch = started.take();
    }
  }

  // 4. The model's part of this rank, perhaps slowed down, and the engine.
  const training::Position position = layout.position_of(rank);
  const OwnedChunks owned = make_chunks(flags, layout, rank);
  const training::ChunksOf<training::TextCompute> chunks = chunks_of(owned);
  training::TrainerOptions options = flags.trainer;
  options.for_each_piece = training::for_each_piece_by_torch;
  Result<std::unique_ptr<training::Trainer>> trainer = training::Trainer::create(
      layout, chunks, *messenger.value(),
      [&](int64_t step, int64_t index, std::span<int64_t> tokens) {
        sampler.value().sample(static_cast<uint64_t>(step), index, tokens);
      },
      options);
  if (!trainer.is_ok()) return trainer.status();
  Result<std::unique_ptr<Evaluating>> evaluating =
      Evaluating::start(flags, input, layout, chunks, *trainer.value(), *messenger.value(), reporter.get());
  if (!evaluating.is_ok()) return evaluating.status();
  // 5. What a checkpoint or a model of others has of it takes the place of the start values.
  Outcome outcome;
  if (resume) {
    HDT_RETURN_IF_ERROR(all_ready(load_tensors(*resume, *trainer.value()->optimizer()), world));
    trainer.value()->restore_loss_scale(resume->state().loss_scale);
    outcome.done = resume->state().step;
    if (rank == 0) {
      for (const std::string& change : changed_settings(resume->state(), flags))
        fmt::print(stderr, "hdt-train: warning: {}\n", change);
    }
    resume.reset();  // its files are not needed any more
    if (rank == 0) fmt::print("goes on from {}, after step {}\n", loaded, outcome.done);
  } else if (origin.pretrained) {
    HDT_RETURN_IF_ERROR(all_ready(load_parameters(*origin.pretrained, *trainer.value()->optimizer()), world));
    if (rank == 0) fmt::print("begins with the model in {}\n", flags.load_hf);
    origin.pretrained.reset();
  }
  if (saving) saving->prepare(*trainer.value()->optimizer());
  // 6. The steps.
  so_far.begin(outcome.done, world.size());
  if (reporter) reporter->go_on(std::move(so_far.points), outcome.done, so_far.first_world_size);
  const auto begin = std::chrono::steady_clock::now();
  const Run run{flags,
                layout,
                world,
                *trainer.value(),
                *messenger.value(),
                reporter.get(),
                saving.get(),
                *evaluating.value(),
                so_far,
                loaded};
  Status trained = train(run, outcome);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  if (trained.is_ok() && !outcome.last.diverged && !outcome.difference && !outcome.stopped) {
    trained = run.in_step(outcome.done, [&] { return evaluating.value()->finish(outcome.done); }).status();
  }

  // A loss is no end where the others go on; so there is no report yet.
  if (!trained.is_ok() && flags.elastic && world.async_error() != HDT_SUCCESS) {
    if (reporter) so_far.points = reporter->break_off();
    return trained;
  }

  // 7. The reports. They are written however the run has ended; an error of training is the more
  //    important one.
  const Status written =
      reporter ? reporter->finish(describe(layout), input.unigram_entropy()) : Status::ok();
  HDT_RETURN_IF_ERROR(trained);
  if (outcome.last.diverged) return divergence_text(outcome.done + 1, outcome.last, run.newest_checkpoint());
  if (outcome.difference)
    return difference_text(outcome.done, *outcome.difference, layout, run.newest_checkpoint());
  HDT_RETURN_IF_ERROR(written);
  if (reporter) {
    sum_up(flags, input, outcome, outcome.done - *so_far.first_step, so_far.elapsed());
    if (so_far.losses > 0) fmt::print("{}", so_far.text());
    HDT_RETURN_IF_ERROR(print_summary(flags, layout, reporter->summary(), devices.get(), elapsed, outcome));
  }
  // Without the last checkpoint the work since the one before would be lost unnoticed.
  if (saving && !saving->failure().is_ok()) return saving->failure().message();
  if (reporter && saving) fmt::print("checkpoint: {}\n", saving->newest());
  // 8. All replicas hold the same parameters, so the stages of replica 0 generate the text.
  if (flags.sample_tokens > 0 && position.replica == 0 && !outcome.stopped) {
    const Result<std::string> text = sample_text(flags, layout, chunks, *messenger.value());
    if (!text.is_ok()) return text.status();
    if (rank == 0) fmt::print("sample:\n{}\n", text.value());
  }
  return std::string();
}

}  // namespace hdt::tools
