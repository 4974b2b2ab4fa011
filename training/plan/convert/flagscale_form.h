// flagscale_form.h: layouts as FlagScale has them: process meshes, one for each kind of device, which follow
// one another in the pipeline. The flags are the keys of its YAML files with "--" before them and "-" for "_"
// (yaml_values.h). By its code (commit da4935e of November 2025: flagscale/train/arguments.py,
// flagscale/train/hetero/parallel_context.py).
#pragma once

#include <string>

#include "base/status.h"
#include "training/plan/convert/flag_values.h"
#include "training/plan/convert/megatron_form.h"
#include "training/plan/convert/strategy.h"

namespace hdt::plan {

// Reads --hetero-process-meshes (tp, cp, ep, dp and pp of each mesh), --hetero-pipeline-layer-split,
// --hetero-device-types and what belongs to them. kInvalidArgument or kConfig if they contradict each other,
// or need what HDT has not: tp, cp or ep above 1, or meshes of different dp.
Result<Warned<Strategy>> read_flagscale(const FlagValues& values, const FormContext& context);

// One line of flags. kConfig if replicas differ, also in their kinds of devices, or stages have several
// chunks.
Result<Warned<std::string>> write_flagscale(const Strategy& strategy);

}  // namespace hdt::plan
