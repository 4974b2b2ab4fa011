// sweep.h: a whole run on one rank: every collective, type, reduction, root and size that was asked for.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "bench/commbench/engine.h"
#include "bench/commbench/options.h"

namespace hdt::bench {

// The outcome of a run, besides the printed table.
struct SweepResult {
  // No wrong value of HDT was seen, by this rank or by the group. If HDT is not measured, of the first
  // engine.
  bool right = true;
  // The report; empty on all ranks but 0.
  std::string json;
};

// Runs everything. All engines have the ranks of one group, and all of these must call it. On rank 0,
// `print` gets the table's text as it comes. `daemon` is a process whose processor time this rank
// reports in addition to its own; 0: none.
Result<SweepResult> run_sweep(const std::vector<Engine>& engines, pid_t daemon, const Options& options,
                              const std::function<void(const std::string&)>& print);

}  // namespace hdt::bench
