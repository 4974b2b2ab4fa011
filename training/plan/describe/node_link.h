// node_link.h: which of the profile's links connects two nodes of a cluster. Every question of that sort
// goes through this function, so that the predictor, the search and the checks of a plan agree.
#pragma once

#include "training/plan/describe/cluster.h"
#include "training/plan/describe/profile.h"

namespace hdt::plan {

// `inside` asks for the link inside a node; then `from` and `to` are the same node or equal ones.
// Otherwise the link is that of the first NIC kind of the cluster that both nodes have. Null if the
// nodes have no NIC kind in common, or if the profile does not know the link. Valid as long as the
// profile.
const Link* link_between(const Cluster& cluster, const Profile& profile, const Node& from, const Node& to,
                         bool inside);

}  // namespace hdt::plan
