// class_sections.h: a plan's classes as text that hdtcommd and hdtctl read.
#pragma once

#include <string>

#include "training/plan/describe/cluster.h"
#include "training/plan/describe/plan.h"

namespace hdt::plan {

// The [class.NAME] sections for hdtcommd's configuration. Before each of them, a comment holds the
// `hdtctl class set` command that moves running groups to the same settings. Empty if the plan has no
// classes.
std::string class_sections(const Plan& plan, const Cluster& cluster);

}  // namespace hdt::plan
