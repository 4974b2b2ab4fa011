// replica_orders.cc: replicas with the same stages on the same nodes are exchanged without effect.
#include "training/plan/search/replica_orders.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "training/plan/describe/replica_kinds.h"

namespace hdt::plan {
namespace {

// Whether no reduction depends on which replica this is: same stages, on the same nodes.
bool same_places(const Replica& one, const Replica& other) {
  return std::ranges::equal(one.stages, other.stages, [](const Stage& a, const Stage& b) {
    return a.layers == b.layers && a.node == b.node && a.tensor_parallel == b.tensor_parallel &&
           a.optimizer_shard_weight == b.optimizer_shard_weight;
  });
}

}  // namespace

std::vector<int> order_of_rings(const PredictionInputs& inputs, const Plan& plan) {
  std::unordered_map<std::string_view, int> index;
  for (size_t node = 0; node < inputs.cluster.nodes.size(); ++node)
    index.emplace(inputs.cluster.nodes[node].name, static_cast<int>(node));
  const std::vector<Node> kinds = inputs.cluster.node_kinds();
  std::vector<int> order;
  for (const Ring& ring : rings_of(plan, inputs.model.has_tied_unit())) {
    std::vector<int> nodes;
    for (const auto& [replica, stage] : ring.members)
      nodes.push_back(
          index.at(plan.replicas[static_cast<size_t>(replica)].stages[static_cast<size_t>(stage)].node));
    const std::set<int> apart(nodes.begin(), nodes.end());
    if (apart.size() < 2) continue;
    std::map<std::pair<int, int>, int> hops;
    for (size_t i = 0; i < nodes.size(); ++i) ++hops[{nodes[i], nodes[(i + 1) % nodes.size()]}];
    for (const auto& [between, count] : hops)
      order.insert(order.end(), {between.first, between.second, count});
    if (plan.runtime.reduction != ReductionKind::kHdt) continue;
    std::set<int> seen;
    for (const int node : nodes) {
      if (seen.insert(node).second)
        order.push_back(static_cast<int>(kind_index(kinds, inputs.cluster.nodes[static_cast<size_t>(node)])));
    }
  }
  return order;
}

void for_each_other_order(const PredictionInputs& inputs, const Plan& plan,
                          const std::function<void(Plan)>& visit) {
  std::set<std::vector<int>> known = {order_of_rings(inputs, plan)};
  if (known.begin()->empty()) return;
  // By replica: the first one with the same places. Permutations of these numbers are all orders that differ.
  std::vector<int> places;
  for (size_t r = 0; r < plan.replicas.size(); ++r) {
    size_t first = 0;
    while (!same_places(plan.replicas[first], plan.replicas[r])) ++first;
    places.push_back(static_cast<int>(first));
  }
  const std::vector<int> given = places;
  std::ranges::sort(places);
  do {
    Plan ordered = plan;
    ordered.replicas.clear();
    std::map<int, size_t> next;  // by place: where to look for the next replica that has it
    for (const int place : places) {
      size_t& from = next[place];
      while (given[from] != place) ++from;
      ordered.replicas.push_back(plan.replicas[from++]);
    }
    if (known.insert(order_of_rings(inputs, ordered)).second) visit(std::move(ordered));
  } while (std::ranges::next_permutation(places).found);
}

}  // namespace hdt::plan
