// node_link.h: which of the profile's links two nodes of a cluster have.
#pragma once

#include "training/plan/describe/cluster.h"
#include "training/plan/describe/profile.h"

namespace hdt::plan {

// Inside a node, or over the first NIC kind of the cluster that both nodes have; nothing: they have none in
// common, or the profile does not know it.
const Link* link_between(const Cluster& cluster, const Profile& profile, const Node& from, const Node& to,
                         bool inside);

}  // namespace hdt::plan
