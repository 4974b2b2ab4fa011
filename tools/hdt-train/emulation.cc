// emulation.cc: reads the cluster's description, makes this rank's device of it, and runs the engine's steps.
#include "tools/hdt-train/emulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/median.h"
#include "tools/common/flag_checks.h"
#include "tools/hdt-train/acceleration.h"
#include "tools/hdt-train/agreement.h"
#include "tools/hdt-train/lost_rank.h"
#include "tools/hdt-train/plan_layout.h"
#include "training/data/progress_line.h"
#include "training/engine/emulated_compute.h"
#include "training/engine/hdt_messenger.h"
#include "training/engine/trainer.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/predict/acceleration.h"
#include "training/plan/predict/predictor.h"

namespace hdt::tools {
namespace {

using Clock = std::chrono::steady_clock;

// The first steps map memory and open connections; they are not counted.
constexpr int64_t kWarmUpSteps = 2;

// kConfig unless the plan fits the files, and each device's memory.
Result<std::unique_ptr<DescribedDevices>> read_emulated(const TrainFlags& flags) {
  Result<std::unique_ptr<DescribedDevices>> described = read_devices(flags.emulate, flags);
  if (!described.is_ok()) return described;
  const DescribedDevices& read = *described.value();
  plan::Prediction memory;
  memory.peak_memory_bytes = plan::peak_memory_bytes(read.inputs(), *flags.plan);
  const plan::MemoryExcess excess = plan::memory_excess(read.cluster, *flags.plan, memory);
  if (excess.bytes > 0)
    return Status(
        Code::kConfig,
        fmt::format("--plan {}: the device of rank {} would lack {:.1f} MiB of memory: expected fewer "
                    "layers there, or more of them recomputed (hdt-plan search --recompute)",
                    flags.plan_path, excess.worker, excess.bytes / (1 << 20)));
  return described;
}

// One for each chunk of a rank.
using EmulatedChunks = std::vector<std::unique_ptr<training::StageCompute>>;

training::ModelChunks chunks_of(const EmulatedChunks& computes) {
  std::vector<training::StageCompute*> all;
  for (const auto& compute : computes) all.push_back(compute.get());
  return training::ModelChunks(std::move(all));
}

// So many numbers of the model's parameters or activations.
size_t elements_in(int64_t bytes, const plan::Model& model) {
  return static_cast<size_t>(bytes) / training::bytes_of(model.types.parameters);
}

// `parameter_bytes`: without a tied matrix.
training::EmulatedUnit emulated_unit(const plan::UnitCost& cost, const plan::Model& model, int unit,
                                     int64_t parameter_bytes) {
  return {.forward = cost.forward,
          .input_gradient = cost.backward - cost.weight_gradient,
          .weight_gradient = cost.weight_gradient,
          .parameters = elements_in(parameter_bytes, model),
          .output_elements = elements_in(model.unit(unit).output_bytes, model)};
}

EmulatedChunks emulated_chunks(const DescribedDevices& emulated, const plan::Plan& plan,
                               const training::Layout& layout, training::Position position) {
  EmulatedChunks computes;
  const training::Replica& replica = layout.replica(position.replica);
  for (; position.chunk < replica.chunks; ++position.chunk) {
    const plan::StageCost cost = plan::stage_cost(emulated.inputs(), plan, layout, position);
    const training::UnitRange range = layout.units_of(position);
    std::vector<training::EmulatedUnit> units;
    for (int unit = range.first; unit < range.end; ++unit)
      units.push_back(emulated_unit(cost.units[static_cast<size_t>(unit - range.first)], emulated.model, unit,
                                    emulated.model.bytes_of(unit, 1)));
    training::EmulatedUnit before;
    if (range.first > 0) before = emulated_unit({}, emulated.model, range.first - 1, 0);
    size_t tied = 0;
    if (layout.has_tied_unit() && (range.contains(0) || range.contains(layout.head_unit())))
      tied = elements_in(emulated.model.bytes_of(training::kTiedUnit, 1), emulated.model);
    computes.push_back(training::make_emulated_compute(range.first, std::move(units), before, tied,
                                                       emulated.model.types.parameters));
  }
  return computes;
}

// By unit, the tied one first: the seconds of its update on this rank's device, as a whole. 0 for the units
// of other ranks.
std::vector<double> update_seconds(const DescribedDevices& emulated, const plan::Plan& plan,
                                   const training::Layout& layout, int rank) {
  std::vector<double> seconds(static_cast<size_t>(layout.num_units() - training::kTiedUnit));
  training::Position position = layout.position_of(rank);
  for (; position.chunk < layout.replica(position.replica).chunks; ++position.chunk) {
    auto unit = static_cast<size_t>(layout.units_of(position).first - training::kTiedUnit);
    for (const plan::UnitCost& cost : plan::stage_cost(emulated.inputs(), plan, layout, position).units)
      seconds[unit++] = cost.update * (1 - cost.tied_part), seconds[0] += cost.update * cost.tied_part;
  }
  return seconds;
}

// The seconds of a rank's update: of each bucket the part that it updates.
double seconds_of_update(const std::vector<double>& updates,
                         std::span<const training::BucketShards> buckets) {
  double seconds = 0;
  for (const training::BucketShards& shards : buckets) {
    if (shards.elements == 0) continue;
    const double part = static_cast<double>(shards.count) / static_cast<double>(shards.elements);
    for (const int unit : shards.bucket.units.numbers())
      seconds += part * updates[static_cast<size_t>(unit - training::kTiedUnit)];
  }
  return seconds;
}

void introduce(const DescribedDevices& emulated, const plan::Plan& plan, const training::Layout& layout) {
  int64_t bytes = 0;
  for (const plan::LayerKind& kind : emulated.model.layers) bytes += kind.count * kind.parameter_bytes.at(1);
  if (emulated.model.has_tied_unit()) bytes -= emulated.model.bytes_of(training::kTiedUnit, 1);
  const training::NumberTypes& types = emulated.model.types;
  fmt::print(
      "emulated: {}, {} parameters in {}, gradients in {}, {} samples a step; computation is waited for, "
      "communication is real\n",
      emulated.model.name, training::format_grouped(static_cast<int64_t>(elements_in(bytes, emulated.model))),
      training::number_type_name(types.parameters), training::number_type_name(types.gradients),
      plan.global_batch_size());
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const training::Position position = layout.position_of(rank);
    const plan::Replica& replica = plan.replicas[static_cast<size_t>(position.replica)];
    const plan::Stage& stage = replica.stages[static_cast<size_t>(position.stage)];
    const plan::Node& node =
        emulated.cluster.nodes[static_cast<size_t>(emulated.cluster.index_of(stage.node))];
    fmt::print("rank {}: replica {}, stage {}: {} layers{}, {} x {} samples on {} ({})\n", rank,
               position.replica, position.stage, stage.layers,
               stage.chunks() == 1 ? "" : fmt::format(" ({})", fmt::join(stage.chunk_layers, " + ")),
               replica.micro_batches, replica.micro_batch_size, node.device, node.name);
  }
  std::fflush(stdout);
}

// Numerator and denominator of the ratio, and where the rest of the step went.
Status sum_up(const DescribedDevices& emulated, const plan::Plan& plan, const training::Layout& layout,
              const std::vector<double>& steps) {
  const plan::PredictionInputs inputs = emulated.inputs();
  const Result<std::vector<plan::DevicesAlone>> alone = plan::devices_alone(inputs, plan);
  if (!alone.is_ok()) return alone.status();
  const Result<double> predicted = plan::predict_seconds(inputs, plan);
  if (!predicted.is_ok()) return predicted.status();
  const double step = median(steps);
  const auto samples = static_cast<double>(plan.global_batch_size());
  fmt::print(
      "step: {:.6g} s, median of {} (fastest {:.6g}, slowest {:.6g}); predicted {:.6g} s ({:+.1f} %)\n", step,
      steps.size(), std::ranges::min(steps), std::ranges::max(steps), predicted.value(),
      100 * (predicted.value() / step - 1));
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const ProfiledWork work = profiled_work(emulated, plan, layout, rank);
    fmt::print("rank {}: computes {:.1f} % of the step, updates {:.1f} %, waits {:.1f} %\n", rank,
               100 * work.compute / step, 100 * work.update / step,
               100 * (1 - (work.compute + work.update) / step));
  }
  fmt::print("{}", acceleration_text(alone.value(), samples / step));
  return Status::ok();
}

}  // namespace

void add_emulation(CLI::App& app, TrainFlags& flags) {
  app.add_option(
         "--emulate", flags.emulate.profile,
         "run the steps of --plan on devices that are not there: computation is a wait as long as this "
         "profile says, communication is real, in the types of numbers of the model file. Nothing is "
         "learnt. Prints throughput and acceleration ratio")
      ->type_name("PROFILE")
      ->check(path_name());
  app.add_option("--emulate-cluster", flags.emulate.cluster,
                 "which node has which devices (default: cluster.toml beside the profile)")
      ->type_name("FILE")
      ->check(path_name());
  app.add_option("--emulate-model", flags.emulate.model,
                 "the layers that the profile measures (default: model.toml beside the profile)")
      ->type_name("FILE")
      ->check(path_name());
}

Status take_emulation(const CLI::App& app, TrainFlags& flags) {
  DeviceFiles& emulate = flags.emulate;
  if (emulate.profile.empty()) {
    if (emulate.cluster.empty() && emulate.model.empty()) return Status::ok();
    return {Code::kInvalidArgument,
            "--emulate-cluster and --emulate-model: expected --emulate, which names the profile, found none"};
  }
  if (!flags.plan)
    return {Code::kInvalidArgument,
            "--emulate: expected --plan, which says which device computes what, found none"};
  // Everything else needs a model that is there. Options of a group are not among those of `app`.
  static constexpr const char* kMeaningful[] = {"--emulate",
                                                "--emulate-cluster",
                                                "--emulate-model",
                                                "--plan",
                                                "--train-iters",
                                                "--log-interval",
                                                "--num-layers",
                                                "--global-batch-size",
                                                "--distributed-timeout-minutes",
                                                "--use-distributed-optimizer",
                                                "--optimizer-shard-weights"};
  std::vector<const CLI::App*> groups = app.get_subcommands([](const CLI::App*) { return true; });
  groups.push_back(&app);
  for (const CLI::App* group : groups) {
    for (const CLI::Option* option : group->get_options()) {
      if (option->count() > 0 && std::ranges::find(kMeaningful, option->get_name()) == std::end(kMeaningful))
        return {Code::kInvalidArgument,
                fmt::format("{}: an emulated run (--emulate) has no use for it", option->get_name())};
    }
  }
  if (flags.train_iters <= kWarmUpSteps)
    return {Code::kInvalidArgument,
            fmt::format("--train-iters {}: expected at least {} with --emulate, as the "
                        "first {} steps are not counted",
                        flags.train_iters, kWarmUpSteps + 1, kWarmUpSteps)};
  emulate.add_defaults();
  return Status::ok();
}

Status run_emulated(const TrainFlags& flags, const training::Layout& of_plan, Communicator& world) {
  const Result<std::unique_ptr<DescribedDevices>> read = read_emulated(flags);
  HDT_RETURN_IF_ERROR(all_ready(read.status(), world));
  const DescribedDevices& emulated = *read.value();
  const training::Layout layout = emulated.model.has_tied_unit() ? of_plan.with_tied_unit() : of_plan;
  // Ranks that have read different files would send each other messages of different sizes.
  const std::string mine = plan::to_toml(emulated.profile) + plan::to_toml(emulated.cluster) +
                           plan::to_toml(emulated.model) + plan::to_toml(*flags.plan);
  const Result<std::string> of_rank_0 = text_of_rank_0(mine, world);
  if (!of_rank_0.is_ok()) return of_rank_0.status();
  HDT_RETURN_IF_ERROR(all_ready(
      of_rank_0.value() == mine
          ? Status::ok()
          : Status(Code::kMismatch, "the files of --plan and --emulate differ from those of rank 0"),
      world));
  // What the plan says is checked; weights of the flags may be of another number of ranks.
  HDT_RETURN_IF_ERROR(training::check_shard_options(layout, flags.trainer.shards));
  // As in a run that computes, sums in fp64 have one order (job.cc).
  const training::NumberTypes& types = emulated.model.types;
  Result<std::unique_ptr<training::Messenger>> messenger =
      training::make_hdt_messenger(world, layout, types.parameters == training::NumberType::kFloat64);
  if (!messenger.is_ok()) return messenger.status();
  const int rank = world.rank();
  const EmulatedChunks computes = emulated_chunks(emulated, *flags.plan, layout, layout.position_of(rank));
  const std::vector<double> updates = update_seconds(emulated, *flags.plan, layout, rank);
  training::TrainerOptions options = flags.trainer;
  options.gradients = types.gradients;
  options.bucket_elements = bucket_elements(*flags.plan, types.gradients);
  // The profile's update is the whole work between two steps: the norm, clipping and AdamW. Of a shard it is
  // the part that the engine gives to this rank.
  options.count_gradient_norm = false;
  options.update = [&updates](double /*gradient_scale*/, std::span<const training::BucketShards> buckets) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_of_update(updates, buckets)));
  };
  Result<std::unique_ptr<training::Trainer>> trainer = training::Trainer::create(
      layout, chunks_of(computes), *messenger.value(),
      [](int64_t /*step*/, int64_t /*index*/, std::span<int64_t> tokens) { std::ranges::fill(tokens, 0); },
      options);
  HDT_RETURN_IF_ERROR(all_ready(trainer.status(), world));
  if (rank == 0) introduce(emulated, *flags.plan, layout);
  std::vector<double> steps;
  for (int64_t step = 0; step < flags.train_iters; ++step) {
    const Clock::time_point begin = Clock::now();
    const Result<training::StepResult> result = trainer.value()->step(step);
    if (!result.is_ok()) return failure_of_step(step + 1, result.status(), layout, world, "");
    const std::chrono::duration<double> taken = Clock::now() - begin;
    if (step >= kWarmUpSteps) steps.push_back(taken.count());
    if (rank == 0 && (step + 1) % flags.log_interval == 0) {
      fmt::print("step {} of {}: {:.6g} s, {:.6g} samples/s\n", step + 1, flags.train_iters, taken.count(),
                 static_cast<double>(layout.global_batch_size()) / taken.count());
      std::fflush(stdout);
    }
  }
  // Parameters of the last update may still be on their way.
  const Status whole = trainer.value()->settle();
  if (!whole.is_ok()) return failure_of_step(flags.train_iters, whole, layout, world, "");
  return rank == 0 ? sum_up(emulated, *flags.plan, layout, steps) : Status::ok();
}

}  // namespace hdt::tools
