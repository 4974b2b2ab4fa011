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
#include "training/plan/validate/trials.h"
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

// The fewest rows that make an interval of 80 %.
constexpr size_t kRowsOfAnInterval = 4;

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
  // As in StepInterval: fewer than four others make no interval of 80 %.
  const size_t others = validation.step.rows - 1;
  if (others < kRowsOfAnInterval)
    fmt::print("intervals: {} other rows are too few for 80 %\n", others);
  else
    fmt::print("intervals from the other rows: {} of {} rows inside, expected at least {:.0f} %\n",
               validation.inside_interval, validation.step.rows, 100 * plan::kIntervalCoverage);
  fmt::print(
      "calibration from all rows: compute {:.3f}, launch {:.3f}, point_to_point {:.3f}, "
      "allreduce {:.3f}, activation {:.3f}, fixed {:.2f} GiB, peer {:.2f} GiB\n",
      all.compute, all.launch.value_or(1), all.point_to_point, all.allreduce, all.activation,
      all.fixed_bytes / plan::kGibibyte, all.peer_bytes / plan::kGibibyte);
  const plan::Calibration& other = validation.elsewhere;
  fmt::print(
      "for another model: point_to_point {:.3f}, allreduce {:.3f}, fixed {:.2f} GiB, peer {:.2f} GiB\n",
      other.point_to_point, other.allreduce, other.fixed_bytes / plan::kGibibyte,
      other.peer_bytes / plan::kGibibyte);
  for (const std::string& limit : validation.limits)
    fmt::print(
        "warning: {}: the measurements ask for more than is plausible, so the profile lacks something "
        "else\n",
        limit);
  fmt::print("\n");
}

// "model", "cluster" or "model and cluster": what the rows were held out by.
const char* held_out_by(const plan::Transfer& transfer) {
  if (transfer.other_devices) return transfer.other_model ? "model and cluster" : "cluster";
  return transfer.other_model ? "model" : "set";
}

// Each set's calibration on the rows of each other set.
void print_transfers(const std::vector<plan::PublishedSet>& sets,
                     const std::vector<plan::Transfer>& transfers) {
  if (transfers.empty()) return;
  fmt::print(
      "## Held out by model and by cluster\n\n"
      "| learnt on | applied to | held out by | step | as from profile | rows in interval | memory | as from "
      "profile |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- |\n");
  const auto errors = [](const plan::ErrorSummary& summary) {
    return fmt::format("{:.1f} %, worst {:.1f} %", 100 * summary.mean, 100 * summary.worst);
  };
  for (const plan::Transfer& transfer : transfers)
    fmt::print("| {} | {} | {} | {} | {} | {} of {} | {} | {} |\n", sets[transfer.from].name,
               sets[transfer.to].name, held_out_by(transfer), errors(transfer.step),
               errors(transfer.profile_step), transfer.inside_interval, transfer.step.rows,
               errors(transfer.memory), errors(transfer.profile_memory));
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
                                 {"profile_step_worst_error", validation.profile_step.worst},
                                 {"rows_in_interval", validation.inside_interval},
                                 {"limits", validation.limits},
                                 {"applied_to", nlohmann::ordered_json::array()}};
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

// Adds each transfer to the set that it was learnt on.
void add_transfers(const std::vector<plan::PublishedSet>& sets, const std::vector<plan::Transfer>& transfers,
                   nlohmann::ordered_json& json) {
  for (const plan::Transfer& transfer : transfers)
    json[transfer.from]["applied_to"].push_back({{"set", sets[transfer.to].name},
                                                 {"held_out_by", held_out_by(transfer)},
                                                 {"step_mean_error", transfer.step.mean},
                                                 {"step_worst_error", transfer.step.worst},
                                                 {"profile_step_mean_error", transfer.profile_step.mean},
                                                 {"rows", transfer.step.rows},
                                                 {"rows_in_interval", transfer.inside_interval}});
}

// `measured` is a file of trials or of own runs if it is a regular file. Own runs need all three files that
// they ran on; trials and a published folder have their own.
Result<std::vector<plan::PublishedSet>> read_sets(const ValidateOptions& options) {
  const InputPaths& paths = options.inputs;
  const std::array<std::pair<const char*, const std::string*>, 3> files = {
      {{"--profile", &paths.profile}, {"--cluster", &paths.cluster}, {"--model", &paths.model}}};
  std::error_code ignored;
  const bool trials = plan::has_trials(options.measured);
  const bool own_runs = !trials && std::filesystem::is_regular_file(options.measured, ignored);
  for (const auto& [flag, path] : files) {
    if (own_runs && path->empty())
      return Status(Code::kConfig, fmt::format("{}: is missing; own runs need what they ran on", flag));
    if (!own_runs && !path->empty())
      return Status(Code::kConfig,
                    fmt::format("{}: given, but '{}' is no file of own runs; a published folder "
                                "has its own, and a file of trials names them",
                                flag, options.measured));
  }
  if (trials) return plan::read_trials(options.measured);
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
  std::vector<plan::Validation> validations;
  for (const plan::PublishedSet& set : sets.value()) {
    for (const std::string& warning : set.warnings) fmt::print(stderr, "hdt-plan: warning: {}\n", warning);
    auto validation = plan::validate(set);
    if (!validation.is_ok()) return validation.status();
    HDT_RETURN_IF_ERROR(
        write_output("--calibrations", calibration(set), plan::to_toml(validation.value().record(set))));
    if (options.json)
      json.push_back(to_json(set, validation.value()));
    else
      print_set(set, validation.value());
    validations.push_back(validation.take());
  }
  const auto transfers = plan::validate_transfers(sets.value(), validations);
  if (!transfers.is_ok()) return transfers.status();
  if (options.json) {
    add_transfers(sets.value(), transfers.value(), json);
    fmt::print("{}\n", json.dump(2));
  } else {
    print_transfers(sets.value(), transfers.value());
  }
  return Status::ok();
}

}  // namespace hdt::tools
