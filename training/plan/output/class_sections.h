// class_sections.h: a plan's classes as hdtcommd and hdtctl read them.
#pragma once

#include <string>

#include "training/plan/describe/cluster.h"
#include "training/plan/describe/plan.h"

namespace hdt::plan {

// The sections for hdtcommd's configuration, each with the command that changes running groups. The plan has
// classes.
std::string class_sections(const Plan& plan, const Cluster& cluster);

}  // namespace hdt::plan
