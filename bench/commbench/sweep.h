// sweep.h: a whole run on one rank: every collective, type, reduction, root and size that was asked for.
#pragma once

#include <functional>
#include <string>

#include "bench/commbench/communicator.h"
#include "bench/commbench/options.h"

namespace hdt::bench {

struct SweepResult {
  bool right = true;  // no wrong value was seen, here or by the group
  std::string json;   // on rank 0
};

// Collective over the group. `print` gets the table's text as it comes, on rank 0 only.
Result<SweepResult> run_sweep(Communicator& communicator, const Options& options,
                              const std::function<void(const std::string&)>& print);

}  // namespace hdt::bench
