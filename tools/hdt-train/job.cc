// job.cc: puts data, model, engine and messenger together, and runs the steps.
//
// Whatever one rank may fail at before the first step is followed by an exchange (all_ready(),
// check_same_run()), so that no rank waits for one that has ended.
#include "tools/hdt-train/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>

#include <array>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "tools/hdt-train/agreement.h"
#include "tools/hdt-train/evaluating.h"
#include "tools/hdt-train/lost_rank.h"
#include "tools/hdt-train/memory_check.h"
#include "tools/hdt-train/plan_layout.h"
#include "tools/hdt-train/pretrained.h"
#include "tools/hdt-train/reporter.h"
#include "tools/hdt-train/resume.h"
#include "tools/hdt-train/run_identity.h"
#include "tools/hdt-train/saving.h"
#include "tools/hdt-train/text_sample.h"
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

using training::format_grouped;

// The layout in words, for the introduction and the picture of the loss.
std::string describe(const training::Layout& layout) {
  std::string text;
  for (int i = 0; i < layout.num_replicas(); ++i) {
    const training::Replica& replica = layout.replica(i);
    text += fmt::format("{}replica {}: {} layers{}, {} x {} samples", i == 0 ? "" : "; ", i,
                        fmt::join(replica.stage_layers, " + "),
                        replica.chunks == 1 ? ""
                                            : fmt::format(" on {} stages with {} chunks each",
                                                          replica.stages(), replica.chunks),
                        replica.num_micro_batches, replica.micro_batch_size);
  }
  return text;
}

// The layers that are recomputed, stage by stage; "" if there are none.
std::string describe_recomputation(const TrainFlags& flags, const training::Layout& layout) {
  std::string text;
  bool any = false;
  for (int i = 0; i < layout.num_replicas(); ++i) {
    std::vector<int> counts;
    const int stages = layout.replica(i).stages();
    for (int part = 0; part < layout.replica(i).virtual_stages(); ++part) {
      counts.push_back(recomputed_layers(flags, layout, {i, part % stages, part / stages}));
      any = any || counts.back() > 0;
    }
    text += fmt::format("{}replica {}: {}", i == 0 ? "" : "; ", i, fmt::join(counts, " + "));
  }
  return any ? text : "";
}

// The rank's parts of the model, first chunk first, perhaps slowed down.
using OwnedChunks = std::vector<std::unique_ptr<training::TextCompute>>;

OwnedChunks make_chunks(const TrainFlags& flags, const training::Layout& layout, int rank) {
  OwnedChunks chunks;
  training::Position position = layout.position_of(rank);
  for (const training::UnitRange& units : layout.ranges_of(rank)) {
    auto compute = training::make_torch_stage(flags.shape, units, recomputed_layers(flags, layout, position),
                                              flags.type);
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

// Rank 0 prints this first. It is flushed, as the first step may take long.
void introduce(const TrainFlags& flags, const TokenInput& input, const training::Layout& layout) {
  const auto& shape = flags.shape;
  fmt::print("model: {} parameters, {} layers, hidden {}, sequence {}, vocabulary {}\n",
             format_grouped(training::parameter_count(shape)), shape.num_layers, shape.hidden_size,
             shape.sequence_length, shape.vocab_size);
  fmt::print("types: parameters and activations {}, gradients {}, the optimizer's states fp32\n",
             training::number_type_name(flags.type), training::number_type_name(flags.trainer.gradients));
  // The entropy is that of a sample where the data is large.
  for (const TokenSet& set : input.sets) {
    fmt::print("data: {} tokens from {}, unigram entropy {:.4f} nats per token{}\n",
               format_grouped(static_cast<int64_t>(set.statistics.tokens)),
               set.flag.substr(set.flag.find(' ') + 1), set.statistics.unigram_entropy,
               input.sets.size() == 1 ? "" : fmt::format(", weight {}", set.weight));
  }
  fmt::print("layout: {} ranks; {}; {} tokens a step\n", layout.world_size(), describe(layout),
             format_grouped(layout.global_batch_size() * shape.sequence_length));
  if (const std::string recomputed = describe_recomputation(flags, layout); !recomputed.empty())
    fmt::print("recomputed layers: {}\n", recomputed);
  if (!flags.without_effect.empty())
    fmt::print("without effect: {}\n", fmt::join(flags.without_effect, "; "));
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
};

// Whether all replicas hold the same model after `done` steps, if this is a step to look.
Result<std::optional<training::WeightDifference>> check_weights(const Run& run, int64_t done) {
  if (run.flags.check_weights == 0 || done % run.flags.check_weights != 0)
    return std::optional<training::WeightDifference>();
  HDT_RETURN_IF_ERROR(run.trainer.settle());
  return training::find_weight_difference(run.layout, run.trainer.memory(), run.messenger);
}

// Runs steps until the last one, until one diverges or replicas differ, or until SIGTERM, and then saves.
Status train(const Run& run, Outcome& outcome) {
  const int64_t first = outcome.done;
  // A step's time begins where the one before has ended, so that the copy for a checkpoint is in it.
  auto begin = std::chrono::steady_clock::now();
  while (outcome.done < run.flags.train_iters) {
    std::array<double, Saving::kSums> sums = {};
    if (run.saving != nullptr) sums = run.saving->sums();
    const Result<training::StepResult> result =
        run.in_step(outcome.done + 1, [&] { return run.trainer.step(outcome.done, sums); });
    if (!result.is_ok()) return result.status();
    outcome.last = result.value();
    if (outcome.last.diverged) break;
    ++outcome.done;
    const auto end = std::chrono::steady_clock::now();
    const std::chrono::duration<double> taken = end - std::exchange(begin, end);
    if (run.reporter != nullptr)
      HDT_RETURN_IF_ERROR(run.reporter->step_done(outcome.done, outcome.last, taken.count()));
    // Before a checkpoint is begun: a model that differs is not worth one.
    const auto checked = check_weights(run, outcome.done);
    if (!checked.is_ok()) return run.failed_in(outcome.done, checked.status());
    outcome.difference = checked.value();
    if (outcome.difference) break;
    if (run.saving != nullptr) {
      const Result<bool> stop = run.saving->step_done(outcome.done, sums, run.trainer);
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
  const Status saved = is_good ? run.saving->finish(outcome.done, run.trainer) : run.saving->settle();
  return saved.is_ok() ? saved : run.failed_in(outcome.done, saved);
}

// A nan's sign is not shown: it says nothing.
std::string divergence_text(int64_t step, const training::StepResult& result, const std::string& checkpoint) {
  const auto unsigned_nan = [](double value) { return std::isnan(value) ? std::abs(value) : value; };
  return fmt::format(
      "training diverged at step {}: loss {}, gradient norm {}{}; the parameters stayed those of step {}. {}"
      "Try a smaller --lr, more --lr-warmup-iters or a smaller --clip-grad",
      step, unsigned_nan(result.loss), unsigned_nan(result.gradient_norm),
      result.diverged_rank < 0 ? "" : fmt::format(", first on rank {}", result.diverged_rank), step - 1,
      checkpoint.empty() ? "" : fmt::format("The newest checkpoint is {}. ", checkpoint));
}

std::string difference_text(int64_t step, const training::WeightDifference& difference,
                            const training::Layout& layout, const std::string& checkpoint) {
  const auto place = [&](int rank) {
    const training::Position position = layout.position_of(rank);
    return fmt::format("rank {} (replica {}, stage {})", rank, position.replica, position.stage);
  };
  return fmt::format(
      "after step {} the replicas hold different models: tensor {} of {} differs from that of {}. It was the "
      "same when it was last compared, so one of both has a fault (memory, device, network or software). {}",
      step, difference.tensor, place(difference.rank), place(difference.other),
      checkpoint.empty() ? "There is no checkpoint" : fmt::format("The newest checkpoint is {}", checkpoint));
}

// Which checkpoint a rank has found, in words that differ if two have found different ones.
std::string identity_of(const std::optional<training::Checkpoint>& resume) {
  if (!resume) return "";
  return fmt::format("step {}, tensors that begin with SHA-256 {}", resume->state().step,
                     resume->tensors().empty() ? "none" : resume->tensors().begin()->second.hash);
}

// The last line for the user. The entropy of the text is what a model would reach that knew only how frequent
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

}  // namespace

Result<std::string> run_job(const TrainFlags& flags, const TokenInput& input, const training::Layout& layout,
                            Origin origin, Communicator& world) {
  std::optional<training::Checkpoint>& resume = origin.resume;
  training::set_torch_threads(flags.threads);
  keep_freed_memory();
  // The messenger makes the groups of the layout, so all ranks must come here.
  Result<std::unique_ptr<training::Messenger>> messenger = training::make_hdt_messenger(world, layout);
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
  if (rank == 0) {
    introduce(flags, input, layout);
    Result<std::unique_ptr<Reporter>> made = Reporter::open(flags, resume.has_value());
    opened = made.status();
    if (made.is_ok()) reporter = made.take();
  }
  HDT_RETURN_IF_ERROR(all_ready(opened, world));
  const std::string loaded = resume ? resume->folder() : "";
  std::unique_ptr<Saving> saving;
  if (!flags.save.empty()) {
    training::TrainingState state;
    state.seed = flags.trainer.seed;
    state.fingerprint = run_fingerprint(flags, input, layout);
    Result<std::unique_ptr<Saving>> made =
        Saving::start(flags, state, layout.global_batch_size(), loaded, world);
    if (!made.is_ok()) return made.status();
    saving = made.take();
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
    outcome.done = resume->state().step;
    resume.reset();  // its files are not needed any more
    if (rank == 0) fmt::print("goes on from {}, after step {}\n", loaded, outcome.done);
  } else if (origin.pretrained) {
    HDT_RETURN_IF_ERROR(all_ready(load_parameters(*origin.pretrained, *trainer.value()->optimizer()), world));
    if (rank == 0) fmt::print("begins with the model in {}\n", flags.load_hf);
    origin.pretrained.reset();
  }
  // 6. The steps.
  const int64_t before = outcome.done;
  const auto begin = std::chrono::steady_clock::now();
  const Run run{flags,
                layout,
                world,
                *trainer.value(),
                *messenger.value(),
                reporter.get(),
                saving.get(),
                *evaluating.value(),
                loaded};
  Status trained = train(run, outcome);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  if (trained.is_ok() && !outcome.last.diverged && !outcome.difference && !outcome.stopped) {
    trained = run.in_step(outcome.done, [&] { return evaluating.value()->finish(outcome.done); }).status();
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
  if (reporter) sum_up(flags, input, outcome, outcome.done - before, elapsed);
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
