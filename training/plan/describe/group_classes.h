// group_classes.h: what hdtcommd has to do for the groups of a plan. Their classes are the engine's: "dp" for
// the owners of the same units, "pp" for the stages of a replica, "tp" for the devices of a stage.
#pragma once

#include <compare>
#include <map>
#include <set>
#include <string>

#include "base/config.h"
#include "base/status.h"
#include "training/plan/describe/cluster.h"
#include "training/plan/describe/plan.h"

namespace hdt::plan {

// Kinds of nodes that talk in groups of a class, and over which kind of NIC.
struct ClassUse {
  std::string from;
  std::string to;  // from <= to
  std::string nic;
  auto operator<=>(const ClassUse&) const = default;
};

// By class; a class whose groups stay inside nodes has none. The cluster has the plan's nodes and NIC kinds.
// kConfig when two nodes that talk have no NIC kind in common.
Result<std::map<std::string, std::set<ClassUse>>> class_uses(const Plan& plan, const Cluster& cluster);

// Backends in the cluster's order and NIC kinds of what each class uses, "shm" for what stays inside nodes;
// pp before dp where they share NICs, since a pipeline waits for each message and gradients have until the
// end of the step. None where the cluster names no NICs.
Result<std::map<std::string, ClassConfig>> class_settings(const Plan& plan, const Cluster& cluster);

// Refuses classes that no group has, NIC kinds that no node has, backends that these do not have, and what
// leaves nodes that talk without the NIC or the backends that the prediction takes them to have.
Status check_classes(const Plan& plan, const Cluster& cluster);

}  // namespace hdt::plan
