// sensitivity.cc: plays the step again with other hardware.
#include "training/plan/output/sensitivity.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "training/plan/predict/predictor.h"
#include "training/plan/predict/recompute_fit.h"

namespace hdt::plan {
namespace {

constexpr double kFasterDevice = 1.1;
constexpr double kWiderLink = 2;
constexpr int kMoreMemory = 2;

Profile with_faster_device(Profile profile, const std::string& device) {
  for (auto& [key, cost] : profile.compute) {
    if (key.device != device) continue;
    for (double* seconds : {&cost.forward, &cost.input_gradient, &cost.weight_gradient, &cost.update})
      *seconds /= kFasterDevice;
    if (cost.recomputed_attention) cost.recomputed_attention->more_seconds /= kFasterDevice;
  }
  return profile;
}

Profile with_wider_links(Profile profile, const std::vector<LinkKey>& links) {
  for (const LinkKey& key : links) {
    Link& link = profile.links.at(key);
    for (auto* const rates : {&link.bandwidth, &link.allreduce}) {
      for (auto& [bytes, rate] : *rates) rate *= kWiderLink;
    }
  }
  return profile;
}

Cluster with_more_memory(Cluster cluster, const std::string& device) {
  for (Node& node : cluster.nodes) {
    if (node.device == device) node.memory_bytes *= kMoreMemory;
  }
  return cluster;
}

// The plan with as few recomputed layers on that device kind as fit.
Plan with_least_recomputation(const PredictionInputs& inputs, Plan plan, const std::string& device) {
  std::vector<int> workers;
  const training::Layout layout = plan.layout();
  for (int worker = 0; worker < layout.world_size(); ++worker) {
    const training::Position position = layout.position_of(worker);
    const Stage& stage = plan.replicas[position.replica].stages[position.stage];
    if (stage.recomputed_layers > 0 &&
        inputs.cluster.nodes[inputs.cluster.index_of(stage.node)].device == device)
      workers.push_back(worker);
  }
  const auto bytes_of = [&](const Plan& tried) { return peak_memory_bytes(inputs, tried); };
  fit_recomputation(inputs, {.layers = true, .attention = true}, workers, bytes_of, plan);
  return plan;
}

// A link has an entry for each direction in some profiles.
std::vector<std::vector<LinkKey>> links_between(const Profile& profile,
                                                const std::set<std::string>& devices) {
  std::map<LinkKey, std::vector<LinkKey>> found;
  for (const auto& [key, link] : profile.links) {
    if (!devices.contains(key.from) || !devices.contains(key.to)) continue;
    LinkKey either = key;
    if (either.to < either.from) std::swap(either.from, either.to);
    found[either].push_back(key);
  }
  std::vector<std::vector<LinkKey>> links;
  for (auto& [either, keys] : found) links.push_back(std::move(keys));
  return links;
}

// Named sets of entries: each link, and the groups that have more than one.
std::vector<std::pair<std::string, std::vector<LinkKey>>> link_groups(
    const std::vector<std::vector<LinkKey>>& links) {
  std::vector<std::pair<std::string, std::vector<LinkKey>>> groups;
  std::map<std::string, std::vector<std::vector<LinkKey>>> together;
  for (const std::vector<LinkKey>& keys : links) {
    const LinkKey& key = keys.front();
    groups.emplace_back(
        fmt::format("link {} - {}{}{}", key.from, key.to, key.nic.empty() ? "" : " over " + key.nic,
                    key.inside ? " inside a node" : ""),
        keys);
    together[key.inside ? "all links inside nodes" : "all links between nodes"].push_back(keys);
    if (!key.nic.empty()) together["all links over " + key.nic].push_back(keys);
  }
  std::set<std::vector<LinkKey>> seen;
  for (const auto& [name, members] : together) {
    std::vector<LinkKey> all;
    for (const std::vector<LinkKey>& keys : members) all.insert(all.end(), keys.begin(), keys.end());
    if (members.size() > 1 && seen.insert(all).second) groups.emplace_back(name, all);
  }
  return groups;
}

}  // namespace

const char* change_kind_name(Change::Kind kind) {
  switch (kind) {
    case Change::Kind::kDevice:
      return "device";
    case Change::Kind::kMemory:
      return "memory";
    case Change::Kind::kLinks:
      return "links";
  }
  return "";
}

Result<std::vector<Change>> changes(const PredictionInputs& inputs, const Plan& plan) {
  HDT_RETURN_IF_ERROR(check_plan(plan, inputs.cluster, inputs.model, inputs.profile));
  std::set<std::string> used;
  for (const Replica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages)
      used.insert(inputs.cluster.nodes[inputs.cluster.index_of(stage.node)].device);
  }
  std::vector<Change> found;
  const auto play = [&](Change change, const Cluster& cluster, const Profile& profile, const Plan& played) {
    const auto seconds = predict_seconds({cluster, inputs.model, profile, inputs.calibration}, played);
    if (!seconds.is_ok()) return seconds.status();
    change.step_seconds = seconds.value();
    found.push_back(std::move(change));
    return Status::ok();
  };
  for (const std::string& device : used) {
    HDT_RETURN_IF_ERROR(play({Change::Kind::kDevice, device + " a tenth faster", device, {}, 0},
                             inputs.cluster, with_faster_device(inputs.profile, device), plan));
    const Cluster cluster = with_more_memory(inputs.cluster, device);
    const Plan lighter =
        with_least_recomputation({cluster, inputs.model, inputs.profile, inputs.calibration}, plan, device);
    HDT_RETURN_IF_ERROR(play({Change::Kind::kMemory, device + " with twice the memory", device, {}, 0},
                             cluster, inputs.profile, lighter));
  }
  for (auto& [name, keys] : link_groups(links_between(inputs.profile, used))) {
    const Profile profile = with_wider_links(inputs.profile, keys);
    HDT_RETURN_IF_ERROR(play({Change::Kind::kLinks, name + " twice as fast", {}, std::move(keys), 0},
                             inputs.cluster, profile, plan));
  }
  std::ranges::stable_sort(found, {}, &Change::step_seconds);
  return found;
}

}  // namespace hdt::plan
