// validate_command.cc: `hdt-plan validate`: predicts the steps of measured plans, prints how far off the
// predictions are, and writes the calibrations that were learnt.
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/hdt-plan/commands.h"
#include "tools/hdt-plan/output_file.h"
#include "training/plan/validate/measured_runs.h"
#include "training/plan/validate/validation.h"

namespace hdt::tools {
namespace {

// "2 replicas of 64 x 2: (12 RTX-3090/2, 12 Titan-RTX/2)": micro-batches x micro-batch size of the first
// replica, then the layers, device kind and tensor-parallel degree of each stage. A replica with the
// same stages as the one before it is not repeated.
std::string shape(const plan::PublishedSet& set, const plan::Plan& plan) {
  std::string text;
  for (size_t i = 0; i < plan.replicas.size(); ++i) {
    std::string replica;
    for (const plan::Stage& stage : plan.replicas[i].stages) {
      const plan::Node& node = set.cluster.nodes[set.cluster.index_of(stage.node)];
      replica += fmt::format("{}{} {}/{}", replica.empty() ? "" : ", ", stage.layers, node.device,
                             stage.tensor_parallel);
    }
    if (text.ends_with("(" + replica + ")")) continue;
    int alike = 1;
    while (i + alike < plan.replicas.size() && plan.replicas[i + alike] == plan.replicas[i]) ++alike;
    text += fmt::format("{}({})", text.empty() ? "" : " + ", replica);
  }
  return fmt::format("{} replicas of {} x {}: {}", plan.replicas.size(), plan.replicas[0].micro_batches,
                     plan.replicas[0].micro_batch_size, text);
}

// A Markdown table, as it stands in docs/notes/predictor-2026.md. Rows without a measured peak have empty
// cells.
void print_set(const plan::PublishedSet& set, const plan::Validation& validation) {
  fmt::print("## {}\n\n", set.name);
  fmt::print(
      "| plan | measured s | predicted s | error | from profile | measured GiB | predicted GiB | error | "
      "what |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (size_t i = 0; i < validation.rows.size(); ++i) {
    const plan::ValidatedRow& row = validation.rows[i];
    const plan::Measurement& measured = *row.measured;
    const std::string memory =
        row.has_memory() ? fmt::format("{:.2f} | {:.2f} | {:+.1f} %",
                                       static_cast<double>(measured.peak_memory_bytes) / plan::kGibibyte,
                                       row.memory_bytes / plan::kGibibyte, 100 * row.memory_error())
                         : fmt::format("| {:.2f} |", row.memory_bytes / plan::kGibibyte);
    fmt::print("| {} | {:.4g} | {:.4g} | {:+.1f} % | {:+.1f} % | {} | {}{} |\n", measured.name,
               measured.step_seconds, row.step_seconds, 100 * row.step_error(),
               100 * validation.from_profile[i].step_error(), memory, shape(set, measured.plan),
               measured.left_out.empty() ? "" : "; not counted: " + measured.left_out);
  }
  const plan::Calibration& all = validation.calibration;
  fmt::print(
      "\nstep: mean error {:.1f} %, worst {:.1f} %, rank correlation {:.3f} "
      "(profile as it is: mean {:.1f} %, worst {:.1f} %)\n",
      100 * validation.step.mean, 100 * validation.step.worst, validation.rank_correlation,
      100 * validation.profile_step.mean, 100 * validation.profile_step.worst);
  if (validation.memory.rows > 0)
    fmt::print(
        "peak memory: mean error {:.1f} %, worst {:.1f} % (profile as it is: mean {:.1f} %, worst {:.1f} "
        "%)\n",
        100 * validation.memory.mean, 100 * validation.memory.worst, 100 * validation.profile_memory.mean,
        100 * validation.profile_memory.worst);
  fmt::print(
      "calibration from all rows: compute {:.3f}, update {:.3f}, launch {:.3f}, point_to_point {:.3f}, "
      "allreduce {:.3f}, activation {:.3f}, fixed {:.2f} GiB, peer {:.2f} GiB\n\n",
      all.compute, all.update, all.launch.value_or(1), all.point_to_point, all.allreduce, all.activation,
      all.fixed_bytes / plan::kGibibyte, all.peer_bytes / plan::kGibibyte);
}

// Errors are fractions: 0.1 is a tenth.
nlohmann::ordered_json to_json(const plan::PublishedSet& set, const plan::Validation& validation) {
  nlohmann::ordered_json json = {{"set", set.name},
                                 {"step_mean_error", validation.step.mean},
                                 {"step_worst_error", validation.step.worst},
                                 {"memory_mean_error", validation.memory.mean},
                                 {"memory_worst_error", validation.memory.worst},
                                 {"rank_correlation", validation.rank_correlation},
                                 {"profile_step_mean_error", validation.profile_step.mean},
                                 {"profile_step_worst_error", validation.profile_step.worst}};
  for (size_t i = 0; i < validation.rows.size(); ++i) {
    const plan::ValidatedRow& row = validation.rows[i];
    json["rows"].push_back({{"plan", row.measured->name},
                            {"counted", row.measured->left_out.empty()},
                            {"measured_seconds", row.measured->step_seconds},
                            {"predicted_seconds", row.step_seconds},
                            {"predicted_from_profile_seconds", validation.from_profile[i].step_seconds},
                            {"measured_bytes", row.measured->peak_memory_bytes},
                            {"predicted_bytes", row.memory_bytes}});
  }
  return json;
}

// `measured` is a file of own runs if it is a regular file. Own runs need all three files that they ran
// on; a published folder has its own.
Result<std::vector<plan::PublishedSet>> read_sets(const ValidateOptions& options) {
  const InputPaths& paths = options.inputs;
  const std::array<std::pair<const char*, const std::string*>, 3> files = {
      {{"--profile", &paths.profile}, {"--cluster", &paths.cluster}, {"--model", &paths.model}}};
  std::error_code ignored;
  const bool own_runs = std::filesystem::is_regular_file(options.measured, ignored);
  for (const auto& [flag, path] : files) {
    if (own_runs && path->empty())
      return Status(Code::kConfig, fmt::format("{}: is missing; own runs need what they ran on", flag));
    if (!own_runs && !path->empty())
      return Status(Code::kConfig,
                    fmt::format("{}: given, but '{}' is no file of own runs; a published folder "
                                "has its own",
                                flag, options.measured));
  }
  if (!own_runs) return plan::import_published_sets(options.measured);
  auto inputs = read_inputs(paths);
  if (!inputs.is_ok()) return inputs.status();
  std::vector<plan::PublishedSet> sets(1);
  sets[0].profile = std::move(inputs.value().profile);
  sets[0].cluster = std::move(inputs.value().cluster);
  sets[0].model = std::move(inputs.value().model);
  HDT_RETURN_IF_ERROR(plan::read_measured_runs(options.measured, sets[0]));
  return sets;
}

}  // namespace

Status validate_command(const ValidateOptions& options) {
  const auto sets = read_sets(options);
  if (!sets.is_ok()) return sets.status();
  // The file of a set's calibration; "" if none is wanted.
  const auto calibration = [&options](const plan::PublishedSet& set) {
    return options.calibrations.empty() ? "" : fmt::format("{}/{}.toml", options.calibrations, set.name);
  };
  // Fitting takes long, so the files are tried before it.
  for (const plan::PublishedSet& set : sets.value())
    HDT_RETURN_IF_ERROR(check_output("--calibrations", calibration(set)));
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const plan::PublishedSet& set : sets.value()) {
    const auto validation = plan::validate(set);
    if (!validation.is_ok()) return validation.status();
    HDT_RETURN_IF_ERROR(
        write_output("--calibrations", calibration(set), plan::to_toml(validation.value().record(set.name))));
    if (options.json)
      json.push_back(to_json(set, validation.value()));
    else
      print_set(set, validation.value());
  }
  if (options.json) fmt::print("{}\n", json.dump(2));
  return Status::ok();
}

}  // namespace hdt::tools
