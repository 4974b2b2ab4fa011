// cluster.cc: finds nodes and kinds, and checks what a cluster's description says about NICs.
#include "training/plan/describe/cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "training/plan/describe/refuse.h"

namespace hdt::plan {
namespace {

// The backends that come with HDT and connect nodes, as hdtcommd's configuration names them.
constexpr const char* kBackends[] = {"tcp", "rdma", "ofi", "ucx"};

// One [[nic]] table: known backends, each once.
Status check_nic(const std::string& field, const NicKind& nic) {
  for (const std::string& backend : nic.backends) {
    // "shm" is not among them: it connects ranks inside a node, and no NIC is needed for that.
    if (std::ranges::find(kBackends, backend) == std::end(kBackends))
      return refuse(field + ".backends",
                    fmt::format("'{}' given, expected {}", backend, fmt::join(kBackends, ", ")));
    if (std::ranges::count(nic.backends, backend) > 1)
      return refuse(field + ".backends", fmt::format("'{}' given twice", backend));
  }
  return Status::ok();
}

// All [[nic]] tables. A class of groups has one list of backends for all NIC kinds (group_classes.h), so
// the kinds' own lists must be parts of one order.
Status check_nics(const Cluster& cluster) {
  // The number of names so far is the number of the table, which has no better name in a message.
  std::set<std::string> names;
  std::vector<std::vector<std::string>> preferences;
  for (const NicKind& nic : cluster.nics) {
    const std::string field = fmt::format("nic {}", names.size() + 1);
    if (!names.insert(nic.name).second)
      return refuse(field + ".name", fmt::format("'{}' given twice", nic.name));
    HDT_RETURN_IF_ERROR(check_nic(field, nic));
    preferences.push_back(nic.backends);
  }
  if (merged_preferences(preferences)) return Status::ok();
  return refuse("nic.backends",
                "two kinds of NICs have them in opposite orders; a class has one order for all");
}

// The NIC kinds of one node. `next` only moves forward through the cluster's kinds, so a kind that comes
// twice or out of order is not found.
Status check_nics_of(const Node& node, const Cluster& cluster) {
  const std::string field = fmt::format("node '{}'.nics", node.name);
  // Either all nodes say which NIC kinds they have, or none does and the cluster is one network.
  if (node.nics.empty())
    return cluster.nics.empty() ? Status::ok() : refuse(field, "is missing, as there are [[nic]] tables");
  auto next = cluster.nics.begin();
  for (const std::string& nic : node.nics) {
    if (std::ranges::find(cluster.nics, nic, &NicKind::name) == cluster.nics.end())
      return refuse(field, fmt::format("'{}' given, but no [[nic]] has that name", nic));
    next = std::find_if(next, cluster.nics.end(), [&](const NicKind& kind) { return kind.name == nic; });
    if (next++ == cluster.nics.end())
      return refuse(field,
                    fmt::format("'{}' given twice or too late, expected the order of the [[nic]] tables, "
                                "best first",
                                nic));
  }
  return Status::ok();
}

}  // namespace

// "@" and "+" separate the parts; the name is only printed and compared, and never taken apart again.
std::string Node::kind() const {
  return nics.empty() ? device : fmt::format("{}@{}", device, fmt::join(nics, "+"));
}

bool same_kind(const Node& a, const Node& b) { return a.device == b.device && a.nics == b.nics; }

// There are few kinds, so a linear search is fast.
size_t kind_index(const std::vector<Node>& kinds, const Node& node) {
  return std::ranges::find_if(kinds, [&](const Node& kind) { return same_kind(kind, node); }) - kinds.begin();
}

std::vector<Node> Cluster::node_kinds() const {
  std::vector<Node> kinds;
  for (const Node& node : nodes) {
    if (kind_index(kinds, node) == kinds.size()) kinds.push_back(node);
  }
  return kinds;
}

// Both lists are in the cluster's order, so the first name in common is the best one.
int Cluster::nic_between(const Node& from, const Node& to) const {
  if (nics.empty()) return 0;
  for (const std::string& nic : from.nics) {
    if (std::ranges::find(to.nics, nic) != to.nics.end())
      return static_cast<int>(std::ranges::find(nics, nic, &NicKind::name) - nics.begin());
  }
  return -1;
}

std::optional<std::vector<std::string>> merged_preferences(std::vector<std::vector<std::string>> lists) {
  std::vector<std::string> merged;
  const auto is_empty = [](const auto& list) { return list.empty(); };
  // Each round moves one entry from the heads of the lists to the result.
  while (!std::ranges::all_of(lists, is_empty)) {
    // Topological sort: take the first head that no list has behind its own head. If there is none, the
    // lists form a cycle.
    const auto chosen = std::ranges::find_if(lists, [&](const auto& list) {
      return !list.empty() && std::ranges::none_of(lists, [&](const auto& other) {
        return !other.empty() && std::find(other.begin() + 1, other.end(), list.front()) != other.end();
      });
    });
    if (chosen == lists.end()) return std::nullopt;
    merged.push_back(chosen->front());
    for (auto& list : lists) {
      if (!list.empty() && list.front() == merged.back()) list.erase(list.begin());
    }
  }
  return merged;
}

int Cluster::index_of(const std::string& node) const {
  const auto found = std::ranges::find(nodes, node, &Node::name);
  return found == nodes.end() ? -1 : static_cast<int>(found - nodes.begin());
}

// Without regard to NICs, unlike node_kinds().
std::vector<std::string> Cluster::device_kinds() const {
  std::vector<std::string> kinds;
  for (const Node& node : nodes) {
    if (std::ranges::find(kinds, node.device) == kinds.end()) kinds.push_back(node.device);
  }
  return kinds;
}

Status check_cluster(const Cluster& cluster) {
  if (cluster.nodes.empty()) return {Code::kConfig, "node: none given, expected at least one"};
  // The kinds come first, as the nodes name them.
  HDT_RETURN_IF_ERROR(check_nics(cluster));
  std::set<std::string> names;
  for (const Node& node : cluster.nodes) {
    if (!names.insert(node.name).second)
      return {Code::kConfig, fmt::format("node.name: '{}' given twice", node.name)};
    HDT_RETURN_IF_ERROR(check_nics_of(node, cluster));
  }
  return Status::ok();
}

}  // namespace hdt::plan
