// placement.cc: first fit.
#include "training/plan/search/placement.h"

namespace hdt::plan {

Placement::Placement(const Cluster& cluster) {
  const std::vector<Node> kinds = cluster.node_kinds();
  places_.resize(kinds.size());
  first_.assign(kinds.size(), 0);
  for (const Node& node : cluster.nodes) places_[kind_index(kinds, node)].push_back({&node, node.devices});
}

std::optional<std::string> Placement::take(int kind, int devices) {
  std::vector<Place>& places = places_[kind];
  size_t& first = first_[kind];
  while (first < places.size() && places[first].left == 0) ++first;
  for (size_t i = first; i < places.size(); ++i) {
    if (places[i].left < devices) continue;
    places[i].left -= devices;
    return places[i].node->name;
  }
  return std::nullopt;
}

}  // namespace hdt::plan
