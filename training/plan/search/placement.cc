// placement.cc: first fit, by each of the rules.
#include "training/plan/search/placement.h"

#include <algorithm>
#include <set>

namespace hdt::plan {

Placement::Placement(const Cluster& cluster) {
  const std::vector<Node> kinds = cluster.node_kinds();
  places_.resize(kinds.size());
  first_.assign(kinds.size(), 0);
  for (const Node& node : cluster.nodes) places_[kind_index(kinds, node)].push_back({&node, node.devices});
}

std::optional<std::string> Placement::take(int kind, int devices, const std::vector<Stage>* avoid) {
  std::vector<Place>& places = places_[kind];
  size_t& first = first_[kind];
  while (first < places.size() && places[first].left == 0) ++first;
  Place* chosen = nullptr;
  for (size_t i = first; i < places.size(); ++i) {
    if (places[i].left < devices) continue;
    const bool avoided =
        avoid && std::ranges::find(*avoid, places[i].node->name, &Stage::node) != avoid->end();
    if (!chosen || !avoided) chosen = &places[i];
    if (!avoided) break;
  }
  if (!chosen) return std::nullopt;
  chosen->left -= devices;
  return chosen->node->name;
}

bool Placement::place(PlacementRule rule, const std::vector<std::vector<int>>& kinds, Plan& plan) {
  if (rule == PlacementRule::kStageByStage) return place_by_stage(kinds, plan);
  for (size_t r = 0; r < plan.replicas.size(); ++r) {
    std::vector<Stage>& stages = plan.replicas[r].stages;
    for (Stage& stage : stages) stage.node.clear();
    for (size_t s = 0; s < stages.size(); ++s) {
      const auto node =
          take(kinds[r][s], stages[s].tensor_parallel, rule == PlacementRule::kAcross ? &stages : nullptr);
      if (!node) return false;
      stages[s].node = *node;
    }
  }
  return true;
}

bool Placement::place_by_stage(const std::vector<std::vector<int>>& kinds, Plan& plan) {
  std::set<size_t> lengths;
  for (const std::vector<int>& replica : kinds) lengths.insert(replica.size());
  for (const size_t length : lengths) {
    for (size_t s = 0; s < length; ++s) {
      for (size_t r = 0; r < plan.replicas.size(); ++r) {
        if (kinds[r].size() != length) continue;
        Stage& stage = plan.replicas[r].stages[s];
        const auto node = take(kinds[r][s], stage.tensor_parallel);
        if (!node) return false;
        stage.node = *node;
      }
    }
  }
  return true;
}

}  // namespace hdt::plan
