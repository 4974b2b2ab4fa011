// emulation.cc: reads the cluster's description, makes this rank's device of it, and runs the engine's steps.
#include "tools/hdt-train/emulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/median.h"
#include "tools/common/flag_checks.h"
#include "tools/hdt-train/agreement.h"
#include "tools/hdt-train/lost_rank.h"
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

// The files that describe the devices and the model of a plan.
struct Emulated {
  plan::Profile profile;
  plan::Cluster cluster;
  plan::Model model;
  plan::PredictionInputs inputs() const { return {cluster, model, profile, {}}; }
};

// kConfig unless the plan fits the files, and each device's memory.
Result<std::unique_ptr<Emulated>> read_emulated(const TrainFlags& flags) {
  Result<plan::Profile> profile = plan::read_profile(flags.emulate.profile);
  if (!profile.is_ok()) return profile.status();
  Result<plan::Cluster> cluster = plan::read_cluster(flags.emulate.cluster);
  if (!cluster.is_ok()) return cluster.status();
  Result<plan::Model> model = plan::read_model(flags.emulate.model);
  if (!model.is_ok()) return model.status();
  auto read = std::make_unique<Emulated>(Emulated{profile.take(), cluster.take(), model.take()});
  const plan::PredictionInputs inputs = read->inputs();
  Status fits = plan::check_profile(read->profile, read->model);
  if (fits.is_ok()) fits = plan::check_plan(*flags.plan, read->cluster, read->model, read->profile);
  if (!fits.is_ok())
    return Status(fits.code(), fmt::format("--plan {}: {}", flags.plan_path, fits.message()));
  plan::Prediction memory;
  memory.peak_memory_bytes = plan::peak_memory_bytes(inputs, *flags.plan);
  const plan::MemoryExcess excess = plan::memory_excess(read->cluster, *flags.plan, memory);
  if (excess.bytes > 0)
    return Status(
        Code::kConfig,
        fmt::format("--plan {}: the device of rank {} would lack {:.1f} MiB of memory: expected fewer "
                    "layers there, or more of them recomputed (hdt-plan search --recompute)",
                    flags.plan_path, excess.worker, excess.bytes / (1 << 20)));
  return read;
}

// The work of a rank's device in one step.
struct Work {
  std::unique_ptr<training::StageCompute> compute;
  double seconds = 0;  // of all its micro-batches
  double update = 0;   // seconds, once a step
};

training::EmulatedUnit emulated_unit(const plan::UnitCost& cost, const plan::LayerKind& kind) {
  return {.forward = cost.forward,
          .input_gradient = cost.backward - cost.weight_gradient,
          .weight_gradient = cost.weight_gradient,
          .parameters = static_cast<size_t>(cost.parameter_bytes) / sizeof(float),
          .output_floats = static_cast<size_t>(kind.output_bytes) / sizeof(float)};
}

Work work_of(const Emulated& emulated, const plan::Plan& plan, const training::Layout& layout,
             training::Position position) {
  const plan::StageCost cost = plan::stage_cost(emulated.inputs(), plan, layout, position);
  const training::UnitRange range = layout.units_of(position);
  std::vector<training::EmulatedUnit> units;
  for (int unit = range.first; unit < range.end; ++unit)
    units.push_back(
        emulated_unit(cost.units[static_cast<size_t>(unit - range.first)], emulated.model.unit(unit)));
  training::EmulatedUnit before;
  if (range.first > 0) before = emulated_unit({}, emulated.model.unit(range.first - 1));
  return {.compute = training::make_emulated_compute(range.first, std::move(units), before),
          .seconds = layout.replica(position.replica).num_micro_batches * (cost.forward + cost.backward),
          .update = cost.update};
}

void introduce(const Emulated& emulated, const plan::Plan& plan, const training::Layout& layout) {
  int64_t bytes = 0;
  for (const plan::LayerKind& kind : emulated.model.layers) bytes += kind.count * kind.parameter_bytes.at(1);
  fmt::print(
      "emulated: {}, {} parameters, {} samples a step; computation is waited for, communication is real\n",
      emulated.model.name, training::format_grouped(bytes / static_cast<int64_t>(sizeof(float))),
      plan.global_batch_size());
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const training::Position position = layout.position_of(rank);
    const plan::Replica& replica = plan.replicas[static_cast<size_t>(position.replica)];
    const plan::Stage& stage = replica.stages[static_cast<size_t>(position.stage)];
    const plan::Node& node =
        emulated.cluster.nodes[static_cast<size_t>(emulated.cluster.index_of(stage.node))];
    fmt::print("rank {}: replica {}, stage {}: {} layers, {} x {} samples on {} ({})\n", rank,
               position.replica, position.stage, stage.layers, replica.micro_batches,
               replica.micro_batch_size, node.device, node.name);
  }
  std::fflush(stdout);
}

std::string alone_text(const plan::DevicesAlone& node) {
  const std::string devices = fmt::format("{}: {} x {} alone: ", node.node, node.workers, node.device);
  if (node.samples_per_second == 0) return devices + "its memory is too small for the model";
  return devices + fmt::format("{:.6g} samples/s{}", node.samples_per_second,
                               node.recomputed_layers == 0
                                   ? ""
                                   : fmt::format(" ({} layers recomputed)", node.recomputed_layers));
}

// Numerator and denominator of the ratio, and where the rest of the step went.
Status sum_up(const Emulated& emulated, const plan::Plan& plan, const training::Layout& layout,
              const std::vector<double>& steps) {
  const plan::PredictionInputs inputs = emulated.inputs();
  const Result<std::vector<plan::DevicesAlone>> alone = plan::devices_alone(inputs, plan);
  if (!alone.is_ok()) return alone.status();
  const Result<double> predicted = plan::predict_seconds(inputs, plan);
  if (!predicted.is_ok()) return predicted.status();
  const double step = median(steps);
  const auto samples = static_cast<double>(plan.global_batch_size());
  const double rates = plan::sum_of_rates(alone.value());
  fmt::print(
      "step: {:.6g} s, median of {} (fastest {:.6g}, slowest {:.6g}); predicted {:.6g} s ({:+.1f} %)\n", step,
      steps.size(), std::ranges::min(steps), std::ranges::max(steps), predicted.value(),
      100 * (predicted.value() / step - 1));
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const Work work = work_of(emulated, plan, layout, layout.position_of(rank));
    fmt::print("rank {}: computes {:.1f} % of the step, updates {:.1f} %, waits {:.1f} %\n", rank,
               100 * work.seconds / step, 100 * work.update / step,
               100 * (1 - (work.seconds + work.update) / step));
  }
  for (const plan::DevicesAlone& node : alone.value()) fmt::print("{}\n", alone_text(node));
  if (rates == 0) {
    fmt::print("throughput: {:.6g} samples/s; no device could train the model alone\n", samples / step);
    return Status::ok();
  }
  fmt::print(
      "acceleration ratio: {:.2f} % = {:.6g} samples/s measured / {:.6g} samples/s of all devices alone\n",
      100 * samples / step / rates, samples / step, rates);
  return Status::ok();
}

}  // namespace

void add_emulation(CLI::App& app, TrainFlags& flags) {
  app.add_option(
         "--emulate", flags.emulate.profile,
         "run the steps of --plan on devices that are not there: computation is a wait as long as this "
         "profile says, communication is real. Nothing is learnt. Prints throughput and acceleration "
         "ratio")
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
  TrainFlags::Emulate& emulate = flags.emulate;
  if (emulate.profile.empty()) {
    if (emulate.cluster.empty() && emulate.model.empty()) return Status::ok();
    return {Code::kInvalidArgument,
            "--emulate-cluster and --emulate-model: expected --emulate, which names the profile, found none"};
  }
  if (!flags.plan)
    return {Code::kInvalidArgument,
            "--emulate: expected --plan, which says which device computes what, found none"};
  // Everything else needs a model that is there. Options of a group are not among those of `app`.
  static constexpr const char* kMeaningful[] = {"--emulate",    "--emulate-cluster",  "--emulate-model",
                                                "--plan",       "--train-iters",      "--log-interval",
                                                "--num-layers", "--global-batch-size"};
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
  const std::filesystem::path folder = std::filesystem::path(emulate.profile).parent_path();
  if (emulate.cluster.empty()) emulate.cluster = (folder / "cluster.toml").string();
  if (emulate.model.empty()) emulate.model = (folder / "model.toml").string();
  return Status::ok();
}

Status run_emulated(const TrainFlags& flags, const training::Layout& layout, Communicator& world) {
  const Result<std::unique_ptr<Emulated>> read = read_emulated(flags);
  HDT_RETURN_IF_ERROR(all_ready(read.status(), world));
  const Emulated& emulated = *read.value();
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
  Result<std::unique_ptr<training::Messenger>> messenger = training::make_hdt_messenger(world, layout);
  if (!messenger.is_ok()) return messenger.status();
  const int rank = world.rank();
  Work work = work_of(emulated, *flags.plan, layout, layout.position_of(rank));
  training::TrainerOptions options = flags.trainer;
  // The profile's update is the whole work between two steps: the norm, clipping and AdamW.
  options.count_gradient_norm = false;
  options.update = [&work](double /*gradient_scale*/) {
    std::this_thread::sleep_for(std::chrono::duration<double>(work.update));
  };
  Result<std::unique_ptr<training::Trainer>> trainer = training::Trainer::create(
      layout, *work.compute, *messenger.value(),
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
  return rank == 0 ? sum_up(emulated, *flags.plan, layout, steps) : Status::ok();
}

}  // namespace hdt::tools
