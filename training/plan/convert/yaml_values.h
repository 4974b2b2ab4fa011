// yaml_values.h: FlagScale's YAML files as the flags that its runner makes of them.
#pragma once

#include <string_view>

#include "base/status.h"
#include "training/plan/convert/flag_values.h"

namespace hdt::plan {

// The settings of the file, whatever section they are in: "num_layers: 8" becomes --num-layers 8, a list
// becomes several values, "true" a flag without a value. What is false or null was not given.
// kInvalidArgument with the line if the text is no YAML, is nested deeper than 32 levels or larger than 1
// MiB, has an alias, or gives a key twice; or if there is no libyaml in this build.
Result<FlagValues> yaml_values(std::string_view text);

}  // namespace hdt::plan
