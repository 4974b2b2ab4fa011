// misplaced_ranks.cc: compares the nodes that ranks run on with those that the plan names.
#include "training/plan/output/misplaced_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace hdt::plan {
namespace {

// A host may be known by its whole name to one side and by its first part to the other.
std::string short_name(const std::string& host) { return host.substr(0, host.find('.')); }

// The node of each worker's stage, by rank.
std::vector<std::string> planned_nodes(const Plan& plan) {
  std::vector<std::string> nodes;
  for (const Replica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages) nodes.push_back(stage.node);
  }
  return nodes;
}

std::string by_host_names(const std::vector<std::string>& nodes, const std::vector<RankPlace>& places) {
  const auto is_elsewhere = [&](size_t rank) {
    return short_name(nodes[rank]) != short_name(places[rank].host);
  };
  size_t first = nodes.size(), count = 0;
  for (size_t rank = nodes.size(); rank-- > 0;) {
    if (!is_elsewhere(rank)) continue;
    first = rank;
    ++count;
  }
  if (count == 0) return "";
  const std::string others = count == 1 ? "" : fmt::format(" (it is the first of {} such ranks)", count);
  return fmt::format("rank {}, whose stage is on node '{}', runs on '{}'{}", first, nodes[first],
                     places[first].host, others);
}

std::string by_company(const std::vector<std::string>& nodes, const std::vector<RankPlace>& places) {
  std::map<std::string, size_t> first_of_planned;  // rank by node of the plan
  std::map<int, size_t> first_of_real;             // rank by node of the job
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    const size_t planned = first_of_planned.try_emplace(nodes[rank], rank).first->second;
    if (places[planned].node != places[rank].node) {
      return fmt::format("ranks {} and {}, whose stages are both on node '{}', run on '{}' and '{}'", planned,
                         rank, nodes[rank], places[planned].host, places[rank].host);
    }
    const size_t real = first_of_real.try_emplace(places[rank].node, rank).first->second;
    if (nodes[real] != nodes[rank]) {
      return fmt::format("ranks {} and {}, whose stages are on nodes '{}' and '{}', run both on '{}'", real,
                         rank, nodes[real], nodes[rank], places[rank].host);
    }
  }
  return "";
}

}  // namespace

std::string misplaced_ranks(const Plan& plan, const std::vector<RankPlace>& places) {
  const std::vector<std::string> nodes = planned_nodes(plan);
  const bool are_hosts = std::ranges::any_of(places, [&](const RankPlace& place) {
    return std::ranges::any_of(
        nodes, [&](const std::string& node) { return short_name(node) == short_name(place.host); });
  });
  return are_hosts ? by_host_names(nodes, places) : by_company(nodes, places);
}

}  // namespace hdt::plan
