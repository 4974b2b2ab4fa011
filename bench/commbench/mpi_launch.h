// mpi_launch.h: ranks of emulated nodes on this machine, started through mpirun because Open MPI is
// measured too.
#pragma once

#include <functional>

#include "bench/commbench/options.h"

namespace hdt::bench {

// In the launcher: runs this program again, with the same arguments, under mpirun, and returns the exit
// code of the run. In the processes that mpirun starts: makes the process a rank and returns the exit
// code of `rank_main`. The environment distinguishes the two.
int run_mpi_ranks(const Options& options, char** argv, const std::function<int()>& rank_main);

}  // namespace hdt::bench
