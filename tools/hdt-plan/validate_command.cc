#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/hdt-plan/commands.h"
#include "training/plan/validation.h"

namespace hdt::tools {
namespace {

constexpr double kGibibyte = double{1 << 30};

// "2 x (12 RTX-3090/2, 12 Titan-RTX/2)": replicas, then layers, device and tensor-parallel degree of each stage.
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

void print_set(const plan::PublishedSet& set, const plan::Validation& validation) {
  fmt::print("## {}\n\n", set.name);
  fmt::print(
      "| plan | measured s | predicted s | error | from profile | measured GiB | predicted GiB | error | "
      "what |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (size_t i = 0; i < validation.rows.size(); ++i) {
    const plan::ValidatedRow& row = validation.rows[i];
    const plan::Measurement& measured = *row.measured;
    fmt::print("| {} | {:.4g} | {:.4g} | {:+.1f} % | {:+.1f} % | {:.2f} | {:.2f} | {:+.1f} % | {}{} |\n",
               measured.name, measured.step_seconds, row.step_seconds, 100 * row.step_error(),
               100 * validation.from_profile[i].step_error(),
               static_cast<double>(measured.peak_memory_bytes) / kGibibyte, row.memory_bytes / kGibibyte,
               100 * row.memory_error(), shape(set, measured.plan),
               measured.left_out.empty() ? "" : "; not counted: " + measured.left_out);
  }
  const plan::Calibration& all = validation.calibration;
  fmt::print(
      "\nstep: mean error {:.1f} %, worst {:.1f} %, rank correlation {:.3f} "
      "(profile as it is: mean {:.1f} %, worst {:.1f} %)\n",
      100 * validation.step.mean, 100 * validation.step.worst, validation.rank_correlation,
      100 * validation.profile_step.mean, 100 * validation.profile_step.worst);
  fmt::print(
      "peak memory: mean error {:.1f} %, worst {:.1f} % (profile as it is: mean {:.1f} %, worst {:.1f} %)\n",
      100 * validation.memory.mean, 100 * validation.memory.worst, 100 * validation.profile_memory.mean,
      100 * validation.profile_memory.worst);
  fmt::print(
      "calibration from all rows: compute {:.3f}, launch {:.3f}, point_to_point {:.3f}, allreduce {:.3f}, "
      "activation {:.3f}, fixed {:.2f} GiB, peer {:.2f} GiB\n\n",
      all.compute, all.launch.value_or(1), all.point_to_point, all.allreduce, all.activation,
      all.fixed_bytes / kGibibyte, all.peer_bytes / kGibibyte);
}

nlohmann::ordered_json to_json(const plan::PublishedSet& set, const plan::Validation& validation) {
  nlohmann::ordered_json json = {{"set", set.name},
                                 {"step_mean_error", validation.step.mean},
                                 {"step_worst_error", validation.step.worst},
                                 {"memory_mean_error", validation.memory.mean},
                                 {"memory_worst_error", validation.memory.worst},
                                 {"rank_correlation", validation.rank_correlation}};
  for (const plan::ValidatedRow& row : validation.rows) {
    json["rows"].push_back({{"plan", row.measured->name},
                            {"counted", row.measured->left_out.empty()},
                            {"measured_seconds", row.measured->step_seconds},
                            {"predicted_seconds", row.step_seconds},
                            {"measured_bytes", row.measured->peak_memory_bytes},
                            {"predicted_bytes", row.memory_bytes}});
  }
  return json;
}

}  // namespace

Status validate_command(const ValidateOptions& options) {
  const auto sets = plan::import_published_sets(options.folder);
  if (!sets.is_ok()) return sets.status();
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const plan::PublishedSet& set : sets.value()) {
    const auto validation = plan::validate(set);
    if (!validation.is_ok()) return validation.status();
    if (options.json)
      json.push_back(to_json(set, validation.value()));
    else
      print_set(set, validation.value());
  }
  if (options.json) fmt::print("{}\n", json.dump(2));
  return Status::ok();
}

}  // namespace hdt::tools
