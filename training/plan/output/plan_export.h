// plan_export.h: a plan as command lines: flags of mixed-vendor Megatron forks, and the start of hdt-train on
// the plan's nodes.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "training/plan/describe/cluster.h"
#include "training/plan/describe/plan.h"

namespace hdt::plan {

// kConfig with field and reason when the engine of hdt-train does not run such plans.
Status check_engine_runs(const Plan& plan);

// As one word of a shell command.
std::string shell_word(const std::string& text);

struct MegatronFlags {
  std::string flags;                  // one line
  std::vector<std::string> warnings;  // what of the plan these flags cannot say
};

// --hetero-pipeline-stages groups neighbouring stages on one device kind. The forks have one split and one
// tensor-parallel degree for all replicas: where the plan has several, the first replica's are given, with a
// warning. The cluster must have the plan's nodes.
MegatronFlags megatron_flags(const Plan& plan, const Cluster& cluster);

// The shell command that starts one rank a worker of the plan on its node, with Open MPI's mpirun.
// `plan_path` and `arguments` go to hdt-train.
std::string mpirun_command(const Plan& plan, const std::string& plan_path,
                           const std::vector<std::string>& arguments);

}  // namespace hdt::plan
