// play_plan.cc: what predict, explain and simulate have in common.
#include <fmt/format.h>

#include <cstdio>

#include "tools/hdt-plan/commands.h"
#include "training/plan/describe/micro_batch_sizes.h"
#include "training/plan/describe/toml_files.h"

namespace hdt::tools {
namespace {

// Names the worker that lacks the most memory. Replicas and stages are numbered from 1, as in the plan's
// file.
Status does_not_fit(const plan::Plan& plan, const plan::MemoryExcess& excess) {
  const training::Position position = plan.layout().position_of(excess.worker);
  const plan::Stage& stage = plan.replicas[position.replica].stages[position.stage];
  return {Code::kConfig,
          fmt::format("does not fit: replica {} stage {} lacks {:.3f} GiB on each device of node '{}'",
                      position.replica + 1, position.stage + 1, excess.bytes / (1 << 30), stage.node)};
}

}  // namespace

Result<PlayedPlan> play_plan(const InputPaths& paths, const std::string& path) {
  auto inputs = read_inputs(paths);
  if (!inputs.is_ok()) return inputs.status();
  auto plan = plan::read_plan(path);
  if (!plan.is_ok()) return plan.status();
  for (const std::string& warning :
       plan::derive_micro_batch_sizes(inputs.value().profile, inputs.value().cluster, plan.value()))
    fmt::print(stderr, "hdt-plan: warning: {}\n", warning);
  const auto& [profile, cluster, model, calibration] = inputs.value();
  auto prediction = plan::predict({cluster, model, profile, calibration.factors}, plan.value());
  // The predictor knows no files: the plan's path is put before its message.
  Status status = prediction.status();
  if (status.is_ok()) {
    const plan::MemoryExcess excess = plan::memory_excess(cluster, plan.value(), prediction.value());
    if (excess.bytes > 0) status = does_not_fit(plan.value(), excess);
  }
  if (!status.is_ok()) return Status(status.code(), path + ": " + status.message());
  return PlayedPlan{inputs.take(), plan.take(), prediction.take()};
}

}  // namespace hdt::tools
