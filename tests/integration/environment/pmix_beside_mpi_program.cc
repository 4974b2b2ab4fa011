// pmix_beside_mpi_program.cc: the exchange before MPI_Init, between MPI_Init and MPI_Finalize, and after, in
// one process. "late": only from MPI_Init on.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include "exchange_rounds.h"

int main(int argc, char** argv) {
  const std::string mode = argc == 2 ? argv[1] : "";
  if (mode != "early" && mode != "late") {
    std::fprintf(stderr, "expected early or late\n");
    return 2;
  }
  if (mode == "early") hdt::client::test::exchange_rounds("before", 2);
  MPI_Init(&argc, &argv);
  hdt::client::test::exchange_rounds("inside", 2);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int sum = 0;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (sum != size * (size - 1) / 2) {
    std::fprintf(stderr, "MPI_Allreduce gave %d\n", sum);
    return 1;
  }
  MPI_Finalize();
  hdt::client::test::exchange_rounds("after", 2);
}
