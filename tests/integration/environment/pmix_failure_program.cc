// pmix_failure_program.cc: run by mpirun. Rank 0 has no daemon, so it has no id for the others. Each rank
// prints what hdtCommInit has told it.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "hdt/hdt.h"

int main() {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr) return 2;
  // An embedded daemon of this job's own: mpirun is the parent of all ranks.
  ::setenv("HDT_NODE_NAME", ("pmix-failure-" + std::to_string(::getppid())).c_str(), 1);
  if (std::string(rank) == "0") ::setenv("HDT_SOCKET", "/nonexistent/hdtcommd.sock", 1);
  hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
  config.timeout_ms = 20'000;
  hdtComm_t comm = nullptr;
  const hdtResult_t result = hdtCommInit(&comm, &config);
  std::printf("rank %s: %d: %s\n", rank, result, hdtGetLastError());
  return result == HDT_ERR_NO_DAEMON ? 0 : 1;
}
