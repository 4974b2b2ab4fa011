// sweep.h: a whole run on one rank: every collective, type, reduction, root and size that was asked for.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "bench/commbench/engine.h"
#include "bench/commbench/options.h"

namespace hdt::bench {

struct SweepResult {
  // No wrong value was seen, here or by the group, of HDT; of the first engine where HDT is not measured.
  bool right = true;
  std::string json;  // on rank 0
};

// Collective over the group, of which all engines have the same ranks. `print` gets the table's text as it
// comes, on rank 0 only. `daemon`: whose processor time this rank reports besides its own; 0: none.
Result<SweepResult> run_sweep(const std::vector<Engine>& engines, pid_t daemon, const Options& options,
                              const std::function<void(const std::string&)>& print);

}  // namespace hdt::bench
