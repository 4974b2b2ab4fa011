// group_classes.h: which settings hdtcommd needs for the groups of a plan. The classes are those that
// the engine makes its groups with: "dp" for the owners of the same units, "pp" for the stages of a
// replica, "tp" for the devices of a stage.
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

// Two kinds of nodes that talk in groups of a class, and the kind of NIC that they use for it.
struct ClassUse {
  std::string from;
  // Kinds as Node::kind() names them. from <= to, so that a pair has one entry.
  std::string to;
  std::string nic;
  auto operator<=>(const ClassUse&) const = default;
};

// The uses of each class that the plan has groups of. A class whose groups all stay inside nodes has an
// empty set. The cluster must have the plan's nodes and must name NIC kinds. kConfig if two nodes that
// talk have no NIC kind in common.
Result<std::map<std::string, std::set<ClassUse>>> class_uses(const Plan& plan, const Cluster& cluster);

// The settings that the plan needs, by class; empty if the cluster names no NICs.
//
// The NIC kinds are those that the class uses, and the backends are theirs, in the cluster's order. A
// class that stays inside nodes has the backend "shm" alone. If "pp" and "dp" share NICs, "pp" gets the
// priority "latency": a pipeline waits for each of its messages, and gradients have until the end of the
// step.
Result<std::map<std::string, ClassConfig>> class_settings(const Plan& plan, const Cluster& cluster);

// Checks the classes that a plan brings. kConfig if
// - a class has no groups in this plan, or a class that has some is missing;
// - a NIC kind is on no node, or no NIC kind of the class has one of its backends;
// - nodes that talk would lack the NIC kind or every backend that the prediction assumes for them. A
//   plan without classes is accepted.
Status check_classes(const Plan& plan, const Cluster& cluster);

}  // namespace hdt::plan
