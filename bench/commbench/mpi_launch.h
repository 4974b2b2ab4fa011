// mpi_launch.h: ranks of emulated nodes on this machine, started through mpirun because Open MPI is measured,
// too.
#pragma once

#include <functional>

#include "bench/commbench/options.h"

namespace hdt::bench {

// Runs this program again, with the same arguments, under mpirun. Each of those processes calls it, too,
// becomes a rank and runs `rank_main`. Returns the exit code of the run, or of the rank.
int run_mpi_ranks(const Options& options, char** argv, const std::function<int()>& rank_main);

}  // namespace hdt::bench
