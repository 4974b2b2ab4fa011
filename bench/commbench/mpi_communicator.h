// mpi_communicator.h: Open MPI as an engine. Present only if the program is built with it.
#pragma once

#include "bench/commbench/peer_communicator.h"

namespace hdt::bench {

// Initialises MPI, and orders its ranks as `group` does. All ranks of `group` must call it; it must
// outlive the result. kInvalidArgument unless mpirun has started the process. Once a process.
Result<std::unique_ptr<Communicator>> make_mpi_communicator(Communicator& group);

// "Open MPI v4.1.4" and which of its transports may be used.
std::string mpi_version();

}  // namespace hdt::bench
