// node_link.cc: asks the cluster for the NIC kind first, then the profile for the link.
#include "training/plan/describe/node_link.h"

namespace hdt::plan {

const Link* link_between(const Cluster& cluster, const Profile& profile, const Node& from, const Node& to,
                         bool inside) {
  if (inside || cluster.nics.empty()) return profile.find_link(from.device, to.device, inside);
  const int nic = cluster.nic_between(from, to);
  return nic < 0 ? nullptr : profile.find_link(from.device, to.device, false, cluster.nics[nic].name);
}

}  // namespace hdt::plan
