// replica_kinds.cc: the rings of owner sets, and colour refinement.
//
// Refinement begins with a coarse division and splits classes until nothing changes. In each round, a
// node's new class follows from its old one, the hops of the rings through it and the stages on it; a
// replica's new class follows from its old one and the classes of its nodes. Each round costs time in
// proportion to the plan, and there are at most as many rounds as classes.
#include "training/plan/describe/replica_kinds.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <string_view>
#include <unordered_map>

namespace hdt::plan {
namespace {

// Properties that distinguish classes, as numbers. Equal signatures mean one class.
using Signature = std::vector<int>;

// Numbers signatures in the order in which they come.
class Numbering {
 public:
  int operator()(const Signature& signature) {
    return numbers_.try_emplace(signature, static_cast<int>(numbers_.size())).first->second;
  }
  int size() const { return static_cast<int>(numbers_.size()); }

 private:
  std::map<Signature, int> numbers_;
};

// The node of each stage, by replica, as an index into the cluster. The table is for plans of thousands
// of stages.
std::vector<std::vector<int>> nodes_of(const Cluster& cluster, const Plan& plan) {
  std::unordered_map<std::string_view, int> index;
  for (size_t i = 0; i < cluster.nodes.size(); ++i) index.emplace(cluster.nodes[i].name, static_cast<int>(i));
  std::vector<std::vector<int>> nodes;
  for (const Replica& replica : plan.replicas) {
    nodes.emplace_back();
    for (const Stage& stage : replica.stages) nodes.back().push_back(index.at(stage.node));
  }
  return nodes;
}

// Fills the counts of a ring. A hop goes from one replica's owner to the next one's, and the last goes
// back to the first.
void count_hops(const Cluster& cluster, const std::vector<std::vector<int>>& nodes, Ring& ring) {
  const int networks = cluster.num_networks();
  ring.out.assign(cluster.nodes.size() * networks, 0);
  ring.in.assign(cluster.nodes.size() * networks, 0);
  ring.inside.assign(cluster.nodes.size(), 0);
  for (size_t i = 0; i < ring.members.size(); ++i) {
    const RingMember& member = ring.members[i];
    const RingMember& next = ring.members[(i + 1) % ring.members.size()];
    const int from = nodes[member.replica][member.stage];
    const int to = nodes[next.replica][next.stage];
    if (from == to) {
      ++ring.inside[from];
    } else {
      const int network = cluster.nic_between(cluster.nodes[from], cluster.nodes[to]);
      ++ring.out[from * networks + network];
      ++ring.in[to * networks + network];
    }
  }
}

// The first division of the replicas: counts, and for each stage its layers, devices, recomputation, kind of
// node, and which earlier stage is on the same node, as stages that share a node share its ports; then the
// layers of its chunks, and the weight of its shards.
Signature first_signature(const Cluster& cluster, const Replica& replica, const std::vector<int>& nodes,
                          Numbering& kinds) {
  Signature signature = {replica.micro_batch_size, replica.micro_batches};
  for (size_t s = 0; s < nodes.size(); ++s) {
    const std::string kind = cluster.nodes[nodes[s]].kind();
    signature.insert(
        signature.end(),
        {replica.stages[s].layers, replica.stages[s].tensor_parallel, replica.stages[s].recomputed_layers,
         replica.stages[s].attention_only ? 1 : 0, kinds(Signature(kind.begin(), kind.end())),
         static_cast<int>(std::ranges::find(nodes, nodes[s]) - nodes.begin()), replica.stages[s].chunks()});
    for (int chunk = 0; chunk < replica.stages[s].chunks(); ++chunk)
      signature.push_back(replica.stages[s].layers_of(chunk));
    const auto weight = std::bit_cast<std::array<int, 2>>(replica.stages[s].optimizer_shard_weight);
    signature.insert(signature.end(), weight.begin(), weight.end());
  }
  return signature;
}

}  // namespace

// Replicas that are split alike own alike, so owner sets are those of one replica of each split.
std::vector<Ring> rings_of(const Plan& plan, bool tied) {
  std::vector<Ring> rings;
  if (tied) {
    Ring ring{{training::kTiedUnit, 0}, {}, {}, {}, {}};
    for (int r = 0; r < static_cast<int>(plan.replicas.size()); ++r) {
      ring.members.push_back({r, 0});
      const auto stages = static_cast<int>(plan.replicas[r].stages.size());
      if (stages > 1) ring.members.push_back({r, stages - 1});
    }
    if (ring.members.size() > 1) rings.push_back(std::move(ring));
  }
  if (plan.replicas.size() < 2) return rings;
  Numbering splits;
  std::vector<int> split_of;
  Plan one_of_each;
  for (const Replica& replica : plan.replicas) {
    Signature split = {replica.chunks()};
    for (const Stage& stage : replica.stages) {
      for (int chunk = 0; chunk < stage.chunks(); ++chunk) split.push_back(stage.layers_of(chunk));
    }
    split_of.push_back(splits(split));
    if (split_of.back() == static_cast<int>(one_of_each.replicas.size()))
      one_of_each.replicas.push_back(replica);
  }
  const training::Layout layout = one_of_each.layout();
  // The owner sets of `one_of_each` have one rank for each split. Every replica owns the units with the
  // stage that its split's rank has.
  for (const training::OwnerSet& set : training::owner_sets(layout)) {
    Ring ring{set.units, {}, {}, {}, {}};
    for (int r = 0; r < static_cast<int>(split_of.size()); ++r)
      ring.members.push_back({r, layout.position_of(set.ranks[split_of[r]]).stage});
    rings.push_back(std::move(ring));
  }
  return rings;
}

ReplicaKinds divide_replicas(const Cluster& cluster, const Plan& plan, bool tied, bool apart) {
  ReplicaKinds found;
  found.nodes = nodes_of(cluster, plan);
  found.rings = rings_of(plan, tied);
  for (Ring& ring : found.rings) count_hops(cluster, found.nodes, ring);
  const size_t replicas = plan.replicas.size();
  const int networks = cluster.num_networks();
  Numbering kinds;
  int classes = 0;
  {
    Numbering numbering;
    for (size_t r = 0; r < replicas; ++r) {
      Signature signature = first_signature(cluster, plan.replicas[r], found.nodes[r], kinds);
      if (apart) signature.push_back(static_cast<int>(r));
      found.replica_kind.push_back(numbering(signature));
    }
    classes = numbering.size();
  }
  // -1 is the class of nodes that hold no stage; they never get another one.
  found.node_class.assign(cluster.nodes.size(), -1);
  for (int before = 0; classes != before;) {
    before = classes;
    // The stages on each node, as (class of the replica, stage), sorted.
    std::vector<std::vector<std::pair<int, int>>> held(cluster.nodes.size());
    for (size_t r = 0; r < replicas; ++r) {
      for (size_t s = 0; s < found.nodes[r].size(); ++s)
        held[found.nodes[r][s]].emplace_back(found.replica_kind[r], static_cast<int>(s));
    }
    Numbering nodes;
    for (size_t node = 0; node < held.size(); ++node) {
      if (held[node].empty()) continue;
      std::ranges::sort(held[node]);
      // The old class comes first, so that classes are only ever divided.
      Signature signature = {found.node_class[node]};
      for (const Ring& ring : found.rings) {
        for (int network = 0; network < networks; ++network) {
          const size_t port = node * networks + network;
          signature.insert(signature.end(), {ring.out[port], ring.in[port]});
        }
        signature.push_back(ring.inside[node]);
      }
      for (const auto& [replica_kind, stage] : held[node])
        signature.insert(signature.end(), {replica_kind, stage});
      if (apart) signature.push_back(static_cast<int>(node));
      found.node_class[node] = nodes(signature);
    }
    Numbering numbering;
    for (size_t r = 0; r < replicas; ++r) {
      Signature signature = {found.replica_kind[r]};
      for (const int node : found.nodes[r]) signature.push_back(found.node_class[node]);
      found.replica_kind[r] = numbering(signature);
    }
    // Classes are only ever divided, so equal numbers of them are equal classes.
    classes = numbering.size();
  }
  return found;
}

}  // namespace hdt::plan
