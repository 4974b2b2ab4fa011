// plan_export.h: a plan as command lines: the flags of mixed-vendor Megatron forks, and the command that
// starts hdt-train on the plan's nodes.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "training/plan/describe/cluster.h"
#include "training/plan/describe/plan.h"

namespace hdt::plan {

// kConfig with field and reason if hdt-train's engine cannot run the plan.
Status check_engine_runs(const Plan& plan);

// The text as one word of a POSIX shell's command line.
std::string shell_word(const std::string& text);

// Flags, and what they leave out.
struct MegatronFlags {
  std::string flags;  // one line
  // One sentence for each property of the plan that the flags cannot express.
  std::vector<std::string> warnings;
};

// Translates a plan with at least one replica. --hetero-pipeline-stages groups neighbouring stages on
// one device kind. The forks have one split and one tensor-parallel degree for all replicas; if the plan
// has several, those of the first replica are given, with a warning. The cluster must have the plan's
// nodes.
MegatronFlags megatron_flags(const Plan& plan, const Cluster& cluster);

// The shell command that starts one rank for each worker of the plan on the worker's node, with Open
// MPI's mpirun. Node names must be host names. `plan_path` and `arguments` go to hdt-train; they are
// quoted here.
std::string mpirun_command(const Plan& plan, const std::string& plan_path,
                           const std::vector<std::string>& arguments);

}  // namespace hdt::plan
