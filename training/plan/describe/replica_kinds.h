// replica_kinds.h: divides a plan's replicas and nodes into classes whose members behave alike in a
// step (equal_replicas.h says when they do, and what that is good for).
#pragma once

#include <vector>

#include "training/engine/ownership.h"
#include "training/plan/describe/cluster.h"
#include "training/plan/describe/plan.h"

namespace hdt::plan {

// The ring allreduce of one owner set. It goes through the owners of a range of units in the order of
// the replicas and back to the first. The counts say how many of its hops leave each node, enter it, and
// stay inside it.
struct Ring {
  training::UnitRange units;
  // By replica: the stage that owns the units.
  std::vector<int> stages;
  // `out` and `in` are indexed by node x Cluster::num_networks() + network, `inside` by node. Empty
  // until divide_replicas() has counted.
  std::vector<int> out, in, inside;
};

// One ring for each owner set, with units and stages but without counts. Empty if there is one replica,
// which has nothing to reduce.
std::vector<Ring> rings_of(const Plan& plan);

// The division. Replicas with the same number in `replica_kind` are equal, and so are nodes in
// `node_class`.
struct ReplicaKinds {
  std::vector<std::vector<int>> nodes;  // by replica and stage: index of the node
  std::vector<Ring> rings;              // one an owner set; none with one replica
  std::vector<int> replica_kind;        // numbered by first replica
  std::vector<int> node_class;          // by node; -1: not in the plan
};

// Divides the replicas and nodes of a plan that check_nodes() has accepted. With `apart` each replica
// and each node is a class of its own.
ReplicaKinds divide_replicas(const Cluster& cluster, const Plan& plan, bool apart);

}  // namespace hdt::plan
