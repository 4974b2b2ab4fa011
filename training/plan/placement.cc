// placement.cc: first fit.
#include "training/plan/placement.h"

#include <algorithm>

namespace hdt::plan {

Placement::Placement(const Cluster& cluster) {
  const std::vector<std::string> kinds = cluster.device_kinds();
  places_.resize(kinds.size());
  first_.assign(kinds.size(), 0);
  for (const Node& node : cluster.nodes)
    places_[std::ranges::find(kinds, node.device) - kinds.begin()].push_back({&node, node.devices});
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
