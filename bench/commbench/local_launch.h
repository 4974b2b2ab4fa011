// local_launch.h: ranks that hdt-commbench itself starts, as processes of this machine that form one or
// several nodes.
#pragma once

#include <functional>

#include "bench/commbench/options.h"

namespace hdt::bench {

// Runs `rank_main` in one forked process a rank, with the environment that makes it a rank of a job of
// options.nodes nodes with options.local ranks each. Returns the exit code of the run: the largest one
// of the ranks, and at least 1 if a rank was lost or had to be killed. Must be called before any thread
// is started, as fork() copies only the calling thread.
int run_local_ranks(const Options& options, const std::function<int()>& rank_main);

}  // namespace hdt::bench
