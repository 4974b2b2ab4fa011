// cluster.cc: finding nodes and kinds.
#include "training/plan/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace hdt::plan {

int Cluster::index_of(const std::string& node) const {
  const auto found = std::ranges::find(nodes, node, &Node::name);
  return found == nodes.end() ? -1 : static_cast<int>(found - nodes.begin());
}

std::vector<std::string> Cluster::device_kinds() const {
  std::vector<std::string> kinds;
  for (const Node& node : nodes) {
    if (std::ranges::find(kinds, node.device) == kinds.end()) kinds.push_back(node.device);
  }
  return kinds;
}

Status check_cluster(const Cluster& cluster) {
  if (cluster.nodes.empty()) return {Code::kConfig, "node: none given, expected at least one"};
  std::set<std::string> names;
  for (const Node& node : cluster.nodes) {
    if (!names.insert(node.name).second)
      return {Code::kConfig, fmt::format("node.name: '{}' given twice", node.name)};
  }
  return Status::ok();
}

}  // namespace hdt::plan
