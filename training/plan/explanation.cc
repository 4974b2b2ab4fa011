// explanation.cc: plays the step again with better hardware.
#include "training/plan/explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "training/plan/predictor.h"

namespace hdt::plan {
namespace {

constexpr double kFasterDevice = 1.1;
constexpr double kWiderLink = 2;

Profile with_faster_device(Profile profile, const std::string& device) {
  for (auto& [key, cost] : profile.compute) {
    if (key.device != device) continue;
    for (double* seconds : {&cost.forward, &cost.input_gradient, &cost.weight_gradient, &cost.update})
      *seconds /= kFasterDevice;
  }
  return profile;
}

}  // namespace

const char* binding_part(const WorkerTime& time) {
  const std::vector<std::pair<double, const char*>> parts = {{time.compute, "compute"},
                                                             {time.exposed_pipeline, "pipeline messages"},
                                                             {time.exposed_reduction, "gradient reduction"},
                                                             {time.bubble, "waiting for others"},
                                                             {time.optimizer, "optimizer"}};
  return std::ranges::max_element(parts, {}, [](const auto& part) { return part.first; })->second;
}

Result<std::vector<Change>> changes(const PredictionInputs& inputs, const Plan& plan) {
  std::set<std::string> used;
  for (const Replica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages)
      used.insert(inputs.cluster.nodes[inputs.cluster.index_of(stage.node)].device);
  }
  std::vector<Change> found;
  const auto play = [&](const std::string& what, const Profile& profile) {
    const auto prediction = predict({inputs.cluster, inputs.model, profile, inputs.calibration}, plan);
    if (prediction.is_ok()) found.push_back({what, prediction.value().step_seconds});
    return prediction.status();
  };
  for (const std::string& device : used)
    HDT_RETURN_IF_ERROR(
        play(fmt::format("{} a tenth faster", device), with_faster_device(inputs.profile, device)));
  for (const auto& [key, link] : inputs.profile.links) {
    if (!used.contains(key.from) || !used.contains(key.to)) continue;
    Profile profile = inputs.profile;
    for (auto& [bytes, rate] : profile.links[key].bandwidth) rate *= kWiderLink;
    HDT_RETURN_IF_ERROR(play(
        fmt::format("link {} - {}{} twice as fast", key.from, key.to, key.inside ? " inside a node" : ""),
        profile));
  }
  std::ranges::stable_sort(found, {}, &Change::step_seconds);
  return found;
}

}  // namespace hdt::plan
