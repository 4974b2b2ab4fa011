// local_launch.h: ranks started by hdt-commbench itself, as processes of this machine that form one or more
// nodes.
#pragma once

#include <functional>

#include "bench/commbench/options.h"

namespace hdt::bench {

// Runs `rank_main` in one forked process a rank, with the environment that makes it a rank of a job of
// options.nodes nodes with options.local ranks each. Must be called before any thread is started. Returns the
// exit code of the run: the greatest of the ranks', or 1 if a rank was lost or had to be ended.
int run_local_ranks(const Options& options, const std::function<int()>& rank_main);

}  // namespace hdt::bench
