// plan_export.h: a plan as command lines: the flags of mixed-vendor Megatron forks, and the command that
// starts hdt-train on the plan's nodes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "training/engine/layout_flags.h"
#include "training/plan/describe/cluster.h"
#include "training/plan/describe/plan.h"

namespace hdt::plan {

// kConfig with field and reason if hdt-train's engine cannot run the plan.
Status check_engine_runs(const Plan& plan);

// The text as one word of a POSIX shell's command line.
std::string shell_word(const std::string& text);

// What a stage computes again, as in Stage.
struct StageRecomputation {
  int layers = 0;
  int recomputed_layers = 0;
  bool attention_only = false;
};
// The flags with a space in front, or "" if no stage recomputes. `stages`: at least one. The flags are the
// same for all stages, and must make all of them fit memory. A warning says so where some recompute more than
// they have to.
// - --recompute-num-layers is the largest number that any stage needs.
// - selective has no number; it is given where each stage that recomputes does so with attention only.
std::string recomputation_flags(std::span<const StageRecomputation> stages,
                                std::vector<std::string>& warnings);

// The flag with a space in front, or "" if optimizer states are whole. A warning says that weights of shards,
// if there are any, are left out.
std::string optimizer_flags(bool sharded, bool has_weights, std::vector<std::string>& warnings);
// Whether a stage has another weight of its shards than 1.
bool has_shard_weights(const Plan& plan);

// Flags, and what they leave out.
struct MegatronFlags {
  std::string flags;  // one line
  // The part of them that says the layout, for fork_warnings().
  training::LayoutFlags layout;
  // One sentence for each property of the plan that the flags cannot express.
  std::vector<std::string> warnings;
};

// Translates a plan with at least one replica. --hetero-pipeline-stages is given where stages have different
// numbers of layers, and --micro-batch-size-per-dp and --num-micro-batches-per-dp where replicas differ in
// these: the forks refuse the two together. --hetero-pipeline-stages groups neighbouring stages on one device
// kind; where stages have several chunks it has the layers of each, and
// --num-virtual-stages-per-pipeline-rank their number. The forks have one split and one tensor-parallel
// degree for all replicas; if the plan has several, those of the first replica are given, with a warning. The
// cluster must have the plan's nodes.
MegatronFlags megatron_flags(const Plan& plan, const Cluster& cluster);

// The shell command that starts one rank for each worker of the plan on the worker's node, with Open
// MPI's mpirun. Node names must be host names. `plan_path` and `arguments` go to hdt-train; they are
// quoted here.
std::string mpirun_command(const Plan& plan, const std::string& plan_path,
                           const std::vector<std::string>& arguments);

}  // namespace hdt::plan
