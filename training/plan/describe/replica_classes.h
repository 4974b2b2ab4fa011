// replica_classes.h: the division of a plan's replicas and nodes into classes (equal_replicas.h).
#pragma once

#include <vector>

#include "training/engine/ownership.h"
#include "training/plan/describe/cluster.h"
#include "training/plan/describe/plan.h"

namespace hdt::plan {

// A ring allreduce goes through the owners of a range of units in the order of replicas. How many of its hops
// each node has: out of it and into it, by node and network (Cluster::num_networks), and inside it, by node.
struct Ring {
  training::UnitRange units;
  std::vector<int> stages;  // by replica: the owner
  std::vector<int> out, in, inside;
};

// Units and stages of each; none with one replica.
std::vector<Ring> rings_of(const Plan& plan);

struct ReplicaClasses {
  std::vector<std::vector<int>> nodes;  // by replica and stage: index of the node
  std::vector<Ring> rings;              // one an owner set; none with one replica
  std::vector<int> replica_class;       // numbered by first replica
  std::vector<int> node_class;          // by node; -1: not in the plan
};

ReplicaClasses divide_replicas(const Cluster& cluster, const Plan& plan, bool apart);

}  // namespace hdt::plan
