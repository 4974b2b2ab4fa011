// pmix_exchange_program.cc: run by mpirun. "rounds": exchanges ids. "absent": fetches a key that nobody
// publishes. "detect": compares the launcher's variables, with and without Open MPI's own, with what PMIx
// says.
#include <cstring>

#include "exchange_rounds.h"
#include "libclient/launch/environment.h"

namespace hdt::client::test {
namespace {

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not true: %s\n", what);
  std::exit(1);
}

void fetch_absent() {
  const auto fetched = must(PmixExchange::instance())->fetch(0, "absent", Deadline::after_ms(300));
  check(!fetched.is_ok(), "an absent key cannot be fetched");
  std::printf("%s\n", fetched.status().to_string().c_str());
  check(fetched.status().code() == Code::kTimeout, "the code is a timeout");
}

void compare_detected() {
  PmixExchange& pmix = *must(PmixExchange::instance());
  const Job open_mpi = must(detect_job(std::getenv));
  check(open_mpi.rank == pmix.rank(), "Open MPI's rank is PMIx's");
  check(open_mpi.size == must(pmix.job_size()), "Open MPI's size is PMIx's");
  check(open_mpi.rendezvous.kind == Rendezvous::Kind::kPmix, "ranks meet through PMIx");
  const Job pmix_only = must(detect_job([](const char* name) -> const char* {
    return std::strncmp(name, "OMPI_", 5) == 0 ? nullptr : std::getenv(name);
  }));
  check(pmix_only.source == "PMIX_RANK" && pmix_only.rank == pmix.rank(), "PMIX_RANK is the rank");
  check(!pmix_only.size.has_value(), "the size is left to PMIx");
  std::printf("detected rank %d of %d, %s on its node\n", open_mpi.rank, *open_mpi.size,
              std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE"));
}

}  // namespace
}  // namespace hdt::client::test

int main(int argc, char** argv) {
  const std::string mode = argc == 2 ? argv[1] : "";
  if (mode == "rounds") {
    hdt::client::test::exchange_rounds("a", 4);
  } else if (mode == "absent") {
    hdt::client::test::fetch_absent();
  } else if (mode == "detect") {
    hdt::client::test::compare_detected();
  } else {
    std::fprintf(stderr, "expected rounds, absent or detect\n");
    return 2;
  }
}
