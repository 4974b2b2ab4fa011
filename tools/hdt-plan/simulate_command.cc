// simulate_command.cc: `hdt-plan simulate`: the steps an hour of a plan, and what failures leave of
// them.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/hdt-plan/commands.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/predict/goodput.h"
#include "training/plan/predict/reliability.h"

namespace hdt::tools {
namespace {

// All figures that are printed.
struct Simulated {
  double step_seconds = 0;
  // Samples of a step; 0: the step was given without a plan.
  double samples = 0;
  int64_t devices = 0;
  plan::FailureModel failures;
  // At the checkpoint interval that was given, or else at the best one.
  plan::Goodput given;
  plan::Goodput best;
};

constexpr double kHour = 3600;

// The step is given by a flag, or is that of a plan; exactly one of the two is needed.
Result<Simulated> simulate(const SimulateOptions& options) {
  Simulated result;
  plan::Cluster cluster;
  if (options.plan.empty()) {
    if (!options.step_seconds)
      return Status(Code::kConfig, "--step-seconds or --plan: expected one of them, found none");
    auto read = plan::read_cluster(options.inputs.cluster);
    if (!read.is_ok()) return read.status();
    cluster = read.take();
    result.step_seconds = *options.step_seconds;
  } else {
    if (options.step_seconds)
      return Status(Code::kConfig, "--step-seconds: given, but --plan says what a step takes");
    if (options.inputs.profile.empty())
      return Status(Code::kConfig, "--profile: is missing; --plan needs it");
    if (options.inputs.model.empty()) return Status(Code::kConfig, "--model: is missing; --plan needs it");
    auto played = play_plan(options.inputs, options.plan);
    if (!played.is_ok()) return played.status();
    cluster = played.value().inputs.cluster;
    result.step_seconds = played.value().prediction.step_seconds;
    result.samples = static_cast<double>(played.value().plan.global_batch_size());
  }
  const auto reliability = plan::read_reliability(options.reliability);
  if (!reliability.is_ok()) return reliability.status();
  // A kind that the cluster does not have is probably mistyped; its failures would be left out silently.
  for (const auto& [kind, mtbf] : reliability.value().device_mtbf_seconds) {
    bool known = false;
    for (const plan::Node& node : cluster.nodes) known = known || node.device == kind;
    if (!known)
      return Status(Code::kConfig,
                    fmt::format("{}: device.kind: the cluster has no '{}'", options.reliability, kind));
  }
  // All devices of the cluster fail, whether the plan uses them or not.
  for (const plan::Node& node : cluster.nodes) result.devices += node.devices;
  result.failures = plan::failure_model(cluster, reliability.value());
  result.best = plan::best_goodput(result.failures);
  result.given = options.checkpoint_interval
                     ? plan::expected_goodput(result.failures, *options.checkpoint_interval)
                     : result.best;
  return result;
}

// One line for one checkpoint interval.
void print_goodput(const char* what, const plan::Goodput& goodput, double steps) {
  fmt::print(
      "{}: checkpoint every {:.6g} s: goodput {:.2f} %, checkpoints {:.2f} %, failures {:.2f} %; {:.6g} "
      "steps/h\n",
      what, goodput.interval_seconds, 100 * goodput.share, 100 * goodput.checkpoint_share,
      100 * goodput.failure_share, steps * goodput.share);
}

// JSON has no infinity: an infinite interval (nothing fails) becomes null.
nlohmann::ordered_json to_json(const plan::Goodput& goodput, double steps) {
  return {
      {"interval_seconds",
       std::isfinite(goodput.interval_seconds) ? nlohmann::json(goodput.interval_seconds) : nlohmann::json()},
      {"goodput", goodput.share},
      {"checkpoint_share", goodput.checkpoint_share},
      {"failure_share", goodput.failure_share},
      {"steps_per_hour", steps * goodput.share}};
}

}  // namespace

Status simulate_command(const SimulateOptions& options) {
  const auto simulated = simulate(options);
  if (!simulated.is_ok()) return simulated.status();
  const Simulated& result = simulated.value();
  const double steps = kHour / result.step_seconds;
  const double failures = kHour * result.failures.failures_per_second;
  if (options.json) {
    nlohmann::ordered_json json = {{"devices", result.devices},
                                   {"step_seconds", result.step_seconds},
                                   {"steps_per_hour_without_failures", steps},
                                   {"failures_per_hour", failures},
                                   {"restart_seconds", result.failures.restart_seconds},
                                   {"given", to_json(result.given, steps)},
                                   {"best", to_json(result.best, steps)}};
    fmt::print("{}\n", json.dump(2));
    return Status::ok();
  }
  fmt::print("devices          {}\nstep             {:.6g} s: {:.6g} steps/h without failures\n",
             result.devices, result.step_seconds, steps);
  if (result.samples > 0)
    fmt::print("throughput       {:.6g} samples/s\n", result.samples / result.step_seconds);
  if (failures == 0) {
    fmt::print("failures         none\n");
  } else {
    fmt::print("failures         one every {:.6g} h, {:.6g} s until training goes on\n", 1 / failures,
               result.failures.restart_seconds);
  }
  if (options.checkpoint_interval) print_goodput("as given", result.given, steps);
  print_goodput("at best ", result.best, steps);
  return Status::ok();
}

}  // namespace hdt::tools
