// replica_kinds.h: divides a plan's replicas and nodes into classes whose members behave alike in a
// step (equal_replicas.h says when they do, and what that is good for).
#pragma once

#include <vector>

#include "training/engine/ownership.h"
#include "training/plan/describe/cluster.h"
#include "training/plan/describe/plan.h"

namespace hdt::plan {

// One owner of a range of units.
struct RingMember {
  int replica = 0;
  int stage = 0;
};

// The ring allreduce of one owner set. It goes through the owners of a range of units in the order of
// the replicas and back to the first. The counts say how many of its hops leave each node, enter it, and
// stay inside it.
struct Ring {
  training::UnitRange units;
  // One of each replica; of the tied unit the first stage and the last one.
  std::vector<RingMember> members;
  // `out` and `in` are indexed by node x Cluster::num_networks() + network, `inside` by node. Empty
  // until divide_replicas() has counted.
  std::vector<int> out, in, inside;
};

// One ring for each owner set of several workers, with units and members but without counts. `tied`: whether
// the model has training::kTiedUnit, which one replica of several stages reduces as well.
std::vector<Ring> rings_of(const Plan& plan, bool tied);

// The division. Replicas with the same number in `replica_kind` are equal, and so are nodes in
// `node_class`.
struct ReplicaKinds {
  std::vector<std::vector<int>> nodes;  // by replica and stage: index of the node
  std::vector<Ring> rings;              // rings_of()
  std::vector<int> replica_kind;        // numbered by first replica
  std::vector<int> node_class;          // by node; -1: not in the plan
};

// Divides the replicas and nodes of a plan that check_nodes() has accepted. `tied` as in rings_of(). With
// `apart` each replica and each node is a class of its own.
ReplicaKinds divide_replicas(const Cluster& cluster, const Plan& plan, bool tied, bool apart);

}  // namespace hdt::plan
