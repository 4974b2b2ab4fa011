// acceleration.cc: reads and compares the files, and puts measured and predicted figures beside each other.
#include "tools/hdt-train/acceleration.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "tools/common/flag_checks.h"
#include "tools/hdt-train/profile_job.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/predict/state_shares.h"

namespace hdt::tools {
namespace {

std::string alone_text(const plan::DevicesAlone& node) {
  const std::string devices = fmt::format("{}: {} x {} alone: ", node.node, node.workers, node.device);
  if (node.samples_per_second == 0) return devices + "its memory is too small for the model\n";
  return devices +
         fmt::format("{:.6g} samples/s{}\n", node.samples_per_second,
                     node.recomputed_layers == 0
                         ? ""
                         : fmt::format(" ({}{} layers recomputed)",
                                       node.attention_only ? "attention of " : "", node.recomputed_layers));
}

// Everything that decides how long a unit takes. The model and the profile must have it in common.
std::string kinds_text(const plan::Model& model) {
  std::string text;
  for (const plan::LayerKind& kind : model.layers)
    text += fmt::format("{}{} x {} of {} bytes that passes on {}", text.empty() ? "" : ", ", kind.count,
                        kind.name, kind.parameter_bytes.contains(1) ? kind.parameter_bytes.at(1) : 0,
                        kind.output_bytes);
  if (model.tied_parameter_bytes.contains(1))
    text += fmt::format(", {} bytes tied", model.tied_parameter_bytes.at(1));
  return text + fmt::format(", in {} with gradients in {}",
                            training::number_type_name(model.types.parameters),
                            training::number_type_name(model.types.gradients));
}

}  // namespace

Result<std::unique_ptr<DescribedDevices>> read_devices(const DeviceFiles& files, const TrainFlags& flags) {
  Result<plan::Profile> profile = plan::read_profile(files.profile);
  if (!profile.is_ok()) return profile.status();
  Result<plan::Cluster> cluster = plan::read_cluster(files.cluster);
  if (!cluster.is_ok()) return cluster.status();
  Result<plan::Model> model = plan::read_model(files.model);
  if (!model.is_ok()) return model.status();
  auto read =
      std::make_unique<DescribedDevices>(DescribedDevices{profile.take(), cluster.take(), model.take()});
  Status fits = plan::check_profile(read->profile, read->model);
  if (fits.is_ok()) fits = plan::check_plan(*flags.plan, read->cluster, read->model, read->profile);
  if (!fits.is_ok())
    return Status(fits.code(), fmt::format("--plan {}: {}", flags.plan_path, fits.message()));
  return read;
}

ProfiledWork profiled_work(const DescribedDevices& devices, const plan::Plan& plan,
                           const training::Layout& layout, int rank) {
  ProfiledWork work;
  training::Position position = layout.position_of(rank);
  const training::Replica& replica = layout.replica(position.replica);
  const plan::StateShares shares(plan, devices.model.has_tied_unit());
  const plan::Stage& stage =
      plan.replicas[static_cast<size_t>(position.replica)].stages[static_cast<size_t>(position.stage)];
  for (; position.chunk < replica.chunks; ++position.chunk) {
    const plan::StageCost cost = plan::stage_cost(devices.inputs(), plan, layout, position);
    work.compute += replica.num_micro_batches * (cost.forward + cost.backward);
    work.update += shares.update_seconds(stage, layout.units_of(position).first, cost);
  }
  return work;
}

std::string acceleration_text(const std::vector<plan::DevicesAlone>& alone, double samples_per_second) {
  std::string text;
  for (const plan::DevicesAlone& node : alone) text += alone_text(node);
  const double rates = plan::sum_of_rates(alone);
  if (rates == 0)
    return text + fmt::format("throughput: {:.6g} samples/s; no device could train the model alone\n",
                              samples_per_second);
  return text + fmt::format(
                    "acceleration ratio: {:.2f} % = {:.6g} samples/s measured / {:.6g} samples/s of "
                    "all devices alone\n",
                    100 * samples_per_second / rates, samples_per_second, rates);
}

void DeviceFiles::add_defaults() {
  const std::filesystem::path folder = std::filesystem::path(profile).parent_path();
  if (cluster.empty()) cluster = (folder / "cluster.toml").string();
  if (model.empty()) model = (folder / "model.toml").string();
}

void add_acceleration(CLI::App& app, TrainFlags& flags) {
  app.add_option("--acceleration-profile", flags.acceleration.profile,
                 "with --plan: a profile of its devices (--profile). The summary then has the acceleration "
                 "ratio: the run's throughput divided by the sum of what each device reaches alone")
      ->type_name("PROFILE")
      ->check(path_name());
  app.add_option("--acceleration-cluster", flags.acceleration.cluster,
                 "which node has which devices (default: cluster.toml beside the profile)")
      ->type_name("FILE")
      ->check(path_name());
  app.add_option("--acceleration-model", flags.acceleration.model,
                 "the layers that the profile measures (default: model.toml beside the profile)")
      ->type_name("FILE")
      ->check(path_name());
}

Status take_acceleration(TrainFlags& flags) {
  DeviceFiles& files = flags.acceleration;
  if (files.profile.empty()) {
    if (files.cluster.empty() && files.model.empty()) return Status::ok();
    return {Code::kInvalidArgument,
            "--acceleration-cluster and --acceleration-model: expected --acceleration-profile, found none"};
  }
  if (!flags.plan)
    return {Code::kInvalidArgument,
            "--acceleration-profile: expected --plan, which says which device computes what, found none"};
  files.add_defaults();
  return Status::ok();
}

Result<std::unique_ptr<DescribedDevices>> read_devices_of_run(const TrainFlags& flags) {
  Result<std::unique_ptr<DescribedDevices>> read = read_devices(flags.acceleration, flags);
  if (!read.is_ok())
    return Status(read.status().code(), "--acceleration-profile: " + read.status().message());
  const std::string measured = kinds_text(read.value()->model);
  const std::string trained = kinds_text(profiled_model(flags));
  if (measured == trained) return read;
  return Status(
      Code::kConfig,
      fmt::format("--acceleration-profile {}: it is of another model; {} has {}, and this run has {}",
                  flags.acceleration.profile, flags.acceleration.model, measured, trained));
}

Result<std::string> acceleration_of_run(const DescribedDevices& devices, const TrainFlags& flags,
                                        const training::Layout& layout, const RunSummary& summary) {
  const std::optional<double> step = summary.seconds_per_step();
  if (!step) return std::string();
  const Result<std::vector<plan::DevicesAlone>> alone = plan::devices_alone(devices.inputs(), *flags.plan);
  if (!alone.is_ok()) return alone.status();
  std::string text;
  const auto steps = static_cast<double>(summary.steps() - 1);  // those that count
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const double profiled = profiled_work(devices, *flags.plan, layout, rank).compute;
    const training::StepTimes& times = summary.times().ranks()[static_cast<size_t>(rank)];
    text += fmt::format("rank {}: computes {:.6g} s a step, the profile says {:.6g} s", rank,
                        times.compute / steps, profiled);
    if (const auto shares = training::shares_of({{times}})) text += "; " + training::to_text(*shares);
    text += '\n';
  }
  return text + acceleration_text(alone.value(), static_cast<double>(layout.global_batch_size()) / *step);
}

}  // namespace hdt::tools
