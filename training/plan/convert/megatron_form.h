// megatron_form.h: layouts as the flags of Megatron and of its mixed-vendor fork SynerFuse, which hdt-train
// has, too.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "training/engine/layout_flags.h"
#include "training/plan/convert/flag_values.h"
#include "training/plan/convert/strategy.h"

namespace hdt::plan {

// What the input of a form may leave open.
struct FormContext {
  // The ranks of the job; no value: as many as the input or the cluster says.
  std::optional<int> ranks;
  // The machines, for names of nodes; may be null.
  const Cluster* cluster = nullptr;
};

// What SynerFuse would do otherwise than HDT with these flags, which make `layout`, or would refuse. By its
// code (commit 4460611 of April 2026: training/arguments.py, legacy/data/data_samplers.py).
std::vector<std::string> fork_warnings(const training::LayoutFlags& flags, const training::Layout& layout);

// Reads --hetero-pipeline-stages, --micro-batch-size-per-dp, --num-micro-batches-per-dp and what belongs to
// them, as SynerFuse and hdt-train have them. Names in errors are those of the flags. kInvalidArgument or
// kConfig if they contradict each other, or need what HDT has not.
Result<Warned<Strategy>> read_fork(const FlagValues& values, const FormContext& context);
// Reads --pipeline-model-parallel-layout and what belongs to it.
Result<Warned<Strategy>> read_megatron_layout(const FlagValues& values, const FormContext& context);

// One line of flags.
Result<Warned<std::string>> write_fork(const Strategy& strategy);
// kConfig if replicas differ: Megatron has one layout for all.
Result<Warned<std::string>> write_megatron_layout(const Strategy& strategy);

// Parts that other forms use.

// Recomputation, as flags say it, for all stages: the layers of each worker are set. Warns of what HDT does
// otherwise.
Status take_recomputation(const FlagValues& values, Warned<Strategy>& strategy);
// The flags for it and for sharded optimizer states, with a space before them. Each holds for all stages.
std::string memory_flags(const Strategy& strategy, std::vector<std::string>& warnings);
// Sharded optimizer states: Megatron's flag.
inline constexpr const char* kShardedOptimizer = "--use-distributed-optimizer";
// kConfig naming the first flag of a kind of parallelism that HDT does not have.
Status refuse_groups(const FlagValues& values);
// The same for divisions of layers, and of samples.
Status refuse_divisions(const FlagValues& values);
// A warning that lists the flags that are none of `known`: they are left out. Nothing if there is none.
std::optional<std::string> left_out(const FlagValues& values, const std::vector<std::string>& known);
// kConfig unless all replicas have the same split and micro-batches. `form` is the one that needs it.
Status check_alike(const Strategy& strategy, const std::string& form);

}  // namespace hdt::plan
