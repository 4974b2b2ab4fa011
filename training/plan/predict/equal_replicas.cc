// equal_replicas.cc: makes the smaller plan, its hops and its reductions from the classes.
//
// Every node is replaced by the first node of its class. A hop between two nodes of one class then
// begins and ends at the same node, though it crosses the network; Hop::crosses says so.
#include "training/plan/predict/equal_replicas.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "training/plan/describe/replica_kinds.h"
#include "training/plan/predict/allreduce_time.h"

namespace hdt::plan {
namespace {

// By node class: the first node of the class, which stands for all of them.
std::vector<int> first_nodes(const ReplicaKinds& classes) {
  std::vector<int> first;
  for (size_t node = 0; node < classes.node_class.size(); ++node) {
    const int index = classes.node_class[node];
    if (index < 0) continue;
    if (index >= static_cast<int>(first.size())) first.resize(index + 1, -1);
    if (first[index] < 0) first[index] = static_cast<int>(node);
  }
  return first;
}

// The number of replicas of the same class that have this stage on the same node as `replica`. They all
// send at the same time, through the same port.
int alike_on_node(const ReplicaKinds& classes, int replica, int stage) {
  int alike = 0;
  for (size_t other = 0; other < classes.nodes.size(); ++other) {
    alike += classes.replica_kind[other] == classes.replica_kind[replica] &&
             classes.nodes[other][stage] == classes.nodes[replica][stage];
  }
  return alike;
}

// From and to are nodes of the cluster; the hop is between the nodes that stand for them.
Hop hop_between(const std::vector<int>& stands_for, const ReplicaKinds& classes, int from, int to) {
  Hop hop{stands_for[classes.node_class[from]], stands_for[classes.node_class[to]]};
  // Two different nodes of one class: the node that stands for them is the same.
  hop.crosses = from != to && hop.from == hop.to;
  return hop;
}

// The hops of a ring, each kind once. Network adds up the users of a port over the hops of a transfer,
// so all users are counted with the first hop that goes through the port, and 0 with the others.
std::vector<Hop> ring_hops(const Cluster& cluster, const std::vector<int>& stands_for,
                           const ReplicaKinds& classes, const Ring& ring) {
  const int networks = cluster.num_networks();
  std::vector<Hop> hops;
  std::set<std::tuple<int, int, bool>> seen;
  std::set<int> out;
  std::set<int> in;
  std::set<int> inside;
  for (size_t i = 0; i < ring.members.size(); ++i) {
    const RingMember& member = ring.members[i];
    const RingMember& next = ring.members[(i + 1) % ring.members.size()];
    const int from = classes.nodes[member.replica][member.stage];
    const int to = classes.nodes[next.replica][next.stage];
    Hop hop = hop_between(stands_for, classes, from, to);
    // Hops between nodes of the same classes are alike; one of them stands for all.
    if (!seen.emplace(hop.from, hop.to, hop.crosses).second) continue;
    // Inside a node there is one port, which counts the users at `from`.
    if (hop.inside()) {
      hop.from_users = inside.insert(hop.from).second ? ring.inside[from] : 0;
    } else {
      const int network = cluster.nic_between(cluster.nodes[from], cluster.nodes[to]);
      const int from_port = networks * from + network;
      const int to_port = networks * to + network;
      hop.from_users = out.insert(networks * hop.from + network).second ? ring.out[from_port] : 0;
      hop.to_users = in.insert(networks * hop.to + network).second ? ring.in[to_port] : 0;
    }
    hops.push_back(hop);
  }
  return hops;
}

}  // namespace

Hop EqualReplicas::back(const Hop& hop) {
  Hop other = hop;
  std::swap(other.from, other.to);
  if (!hop.inside()) std::swap(other.from_users, other.to_users);
  return other;
}

// 1. Divide replicas and nodes into classes.
// 2. Take the first replica of each class into the smaller plan, with its hops.
// 3. Make the reductions of the whole plan over the smaller one.
// 4. Time the sum of the norm over all workers.
EqualReplicas find_equal_replicas(const PredictionInputs& inputs, const Plan& plan, bool apart) {
  const ReplicaKinds classes = divide_replicas(inputs.cluster, plan, inputs.model.has_tied_unit(), apart);
  const std::vector<int> stands_for = first_nodes(classes);
  EqualReplicas equal{{}, {}, {}, {}, {}, StateShares(plan, inputs.model.has_tied_unit()), 0};
  equal.plan.runtime = plan.runtime;
  equal.class_of = classes.replica_kind;
  std::vector<int> first;  // replica of each class
  // The first replica of each class, on the nodes that stand for its own. Classes are numbered by their
  // first replica, so a class number that was not seen is the next one.
  for (size_t r = 0; r < plan.replicas.size(); ++r) {
    if (equal.class_of[r] < static_cast<int>(first.size())) continue;
    first.push_back(static_cast<int>(r));
    equal.plan.replicas.push_back(plan.replicas[r]);
    const std::vector<int>& nodes = classes.nodes[r];
    std::vector<Hop>& hops = equal.activations.emplace_back();
    for (size_t s = 0; s < nodes.size(); ++s)
      equal.plan.replicas.back().stages[s].node =
          inputs.cluster.nodes[stands_for[classes.node_class[nodes[s]]]].name;
    std::vector<Hop>& sums = equal.tensor_sums.emplace_back();
    for (size_t s = 0; s < nodes.size(); ++s) {
      sums.push_back(hop_between(stands_for, classes, nodes[s], nodes[s]));
      sums.back().from_users = plan.replicas[r].stages[s].tensor_parallel *
                               alike_on_node(classes, static_cast<int>(r), static_cast<int>(s));
    }
    const size_t senders = plan.replicas[r].chunks() > 1 ? nodes.size() : nodes.size() - 1;
    for (size_t s = 0; s < senders; ++s) {
      const size_t next = (s + 1) % nodes.size();
      hops.push_back(hop_between(stands_for, classes, nodes[s], nodes[next]));
      hops.back().from_users = alike_on_node(classes, static_cast<int>(r), static_cast<int>(s));
      hops.back().to_users = alike_on_node(classes, static_cast<int>(r), static_cast<int>(next));
    }
  }
  const training::Layout layout = equal.plan.layout();
  // Reductions of the whole plan, with one worker of each class.
  std::vector<OwnedRange> ranges;
  for (const Ring& ring : classes.rings) {
    OwnedRange range{{},
                     ring.units,
                     static_cast<int>(ring.members.size()),
                     ring_hops(inputs.cluster, stands_for, classes, ring),
                     {}};
    // A node with several owners takes part in the allreduce once.
    std::set<int> seen;
    for (const auto& [r, s] : ring.members) {
      const int node = classes.nodes[r][s];
      if (seen.insert(node).second) range.nodes.push_back(stands_for[classes.node_class[node]]);
      if (first[equal.class_of[r]] == r) range.workers.push_back(layout.rank_of({equal.class_of[r], s}));
      if (equal.shares.sharded())
        range.least_share =
            std::min(range.least_share, equal.shares.of(plan.replicas[r].stages[s], ring.units.first));
    }
    ranges.push_back(std::move(range));
  }
  equal.reductions = plan_reductions(inputs, equal.plan, layout, ranges);
  if (plan.runtime.reduction == ReductionKind::kHdt) {
    std::vector<int> used;
    for (const int node_class : classes.node_class) {
      if (node_class >= 0) used.push_back(stands_for[node_class]);
    }
    // Some node has two workers if there are more workers than nodes.
    size_t workers = 0;
    for (const Replica& replica : plan.replicas) workers += replica.stages.size();
    equal.norm_seconds = small_sum_seconds(inputs, used, workers > used.size());
  }
  return equal;
}

Prediction EqualReplicas::of_all(const Prediction& prediction) const {
  const training::Layout layout = plan.layout();
  Prediction all;
  all.step_seconds = prediction.step_seconds;
  // By worker of `plan`: the numbers of its equals in the whole plan.
  std::vector<std::vector<int>> copies(layout.world_size());
  for (const int replica_kind : class_of) {
    for (int stage = 0; stage < layout.replica(replica_kind).stages(); ++stage) {
      const int worker = layout.rank_of({replica_kind, stage});
      copies[worker].push_back(static_cast<int>(all.workers.size()));
      all.workers.push_back(prediction.workers[worker]);
      all.peak_memory_bytes.push_back(prediction.peak_memory_bytes[worker]);
    }
  }
  for (const Span& span : prediction.spans) {
    for (const int worker : copies[span.worker]) {
      all.spans.push_back(span);
      all.spans.back().worker = worker;
    }
  }
  return all;
}

}  // namespace hdt::plan
