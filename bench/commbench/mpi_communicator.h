// mpi_communicator.h: Open MPI as an engine. Only where the program is built with it.
#pragma once

#include "bench/commbench/peer_communicator.h"

namespace hdt::bench {

// Initialises MPI and orders its ranks as `group` does. The process must have been started by mpirun.
Result<std::unique_ptr<Communicator>> make_mpi_communicator(Communicator& group);

// "Open MPI v4.1.4" and which of its transports may be used.
std::string mpi_version();

}  // namespace hdt::bench
