// main.cc: hdt-commbench, the benchmark of HDT's collectives.
//
// The process is either the launcher, which starts ranks and waits for them (--local, --nodes), or a
// rank. A rank joins the job's group by libhdt, makes the other engines, and sweeps. Exit code 0: all
// values are right; 1: wrong values or a failure; 2: wrong usage.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/run_main.h"
#include "base/unique_fd.h"

#include "bench/commbench/engines.h"
#include "bench/commbench/hdt_communicator.h"
#include "bench/commbench/local_launch.h"
#include "bench/commbench/mpi_launch.h"
#include "bench/commbench/options.h"
#include "bench/commbench/resource_use.h"
#include "bench/commbench/sweep.h"

namespace hdt::bench {
namespace {

int complain_of_json(const std::string& path, int error) {
  std::fprintf(stderr, "hdt-commbench: --json: cannot write '%s': %s\n", path.c_str(), std::strerror(error));
  return 1;
}

// Whether the file can be written, before there is anything to write. Changes nothing that exists;
// devices are not opened. Returns an exit code.
int try_json(const std::string& path) {
  struct stat info {};
  const bool there = ::stat(path.c_str(), &info) == 0;
  if (path.empty() || (there && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))) return 0;
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (file.get() < 0) return complain_of_json(path, errno);
  if (!there) ::unlink(path.c_str());
  return 0;
}

// Returns an exit code.
int write_json(const std::string& path, const std::string& json) {
  errno = 0;
  std::ofstream file(path, std::ios::trunc);
  file << json;
  file.close();
  return file ? 0 : complain_of_json(path, errno);
}

// Whether the options name this engine.
bool measures(const Options& options, EngineKind kind) {
  return std::find(options.engines.begin(), options.engines.end(), kind) != options.engines.end();
}

// The node's hdtcommd if it is a process of its own and this rank is the first one on the node;
// otherwise 0. So the processor time of each daemon is counted once.
pid_t daemon_to_report(const Communicator& communicator) {
  // Without it the daemon is embedded in a rank, whose processor time counts anyway.
  const char* socket = std::getenv("HDT_SOCKET");
  if (socket == nullptr) return 0;
  const int own = communicator.node_of(communicator.rank());
  for (int rank = 0; rank < communicator.rank(); ++rank) {
    if (communicator.node_of(rank) == own) return 0;
  }
  return listener_of(socket);
}

// Measures everything, and returns the exit code of this rank.
int measure(Communicator& communicator, const Options& options) {
  // Connects the peers.
  const Result<Engines> engines = Engines::make(options, communicator);
  if (!engines.is_ok()) {
    const bool usage = engines.status().code() == Code::kInvalidArgument;  // the same on every rank
    if (!usage || communicator.rank() == 0) {
      std::fprintf(stderr, "hdt-commbench: %s\n", engines.status().message().c_str());
    }
    return usage ? 2 : 1;
  }
  const Result<SweepResult> swept =
      // Each line is flushed, so that a long run can be followed.
      run_sweep(engines.value().list(), daemon_to_report(communicator), options, [](const std::string& text) {
        std::fputs(text.c_str(), stdout);
        std::fflush(stdout);
      });
  if (!swept.is_ok()) {
    std::fprintf(stderr, "hdt-commbench: rank %d: %s\n", communicator.rank(),
                 swept.status().message().c_str());
    return 1;
  }
  int code = swept.value().right ? 0 : 1;
  // Written even if values were wrong: the report says which.
  if (communicator.rank() == 0 && !options.json_file.empty()) {
    code |= write_json(options.json_file, swept.value().json);
  }
  return code;
}

// The main function of a rank.
int run_rank(const Options& options) {
  // HDT is joined whether or not it is measured, as it carries the bookkeeping.
  Result<std::unique_ptr<HdtCommunicator>> joined =
      HdtCommunicator::join(options.timeout_s, options.hdt_memory);
  if (!joined.is_ok()) {
    std::fprintf(stderr, "hdt-commbench: %s\n", joined.status().to_string().c_str());
    return 1;
  }
  HdtCommunicator& communicator = *joined.value();
  const Status root = check_root(options, communicator.ranks());
  if (!root.is_ok()) {
    if (communicator.rank() == 0) std::fprintf(stderr, "hdt-commbench: %s\n", root.message().c_str());
    return 2;
  }
  if (communicator.rank() == 0 && try_json(options.json_file) != 0) return 1;
  const int code = measure(communicator, options);
  // No rank leaves, and takes an embedded daemon along, while others still wait for their peers'
  // libraries to end.
  return communicator.barrier().is_ok() ? code : std::max(code, 1);
}

}  // namespace
}  // namespace hdt::bench

namespace {

int run(int argc, char** argv) {
  using namespace hdt::bench;
  const auto parsed = parse_options(argc, argv);
  if (const auto* information = std::get_if<Information>(&parsed)) {
    std::fputs(information->text.c_str(), stdout);
    return 0;
  }
  if (const auto* wrong = std::get_if<hdt::Status>(&parsed)) {
    std::fprintf(stderr, "hdt-commbench: %s\n", wrong->message().c_str());
    return 2;
  }
  const Options& options = std::get<Options>(parsed);
  if (const hdt::Status built = check_engines_are_built(options.engines); !built.is_ok()) {
    std::fprintf(stderr, "hdt-commbench: %s\n", built.message().c_str());
    return 2;
  }
  // The launcher tries the file as well, so that the complaint comes once and before any rank is
  // started.
  if (options.local > 0 || options.nodes > 0) {
    if (const int code = try_json(options.json_file); code != 0) return code;
    const auto rank_main = [&options] { return run_rank(options); };
    return measures(options, EngineKind::kMpi) ? run_mpi_ranks(options, argv, rank_main)
                                               : run_local_ranks(options, rank_main);
  }
  return run_rank(options);
}

}  // namespace

int main(int argc, char** argv) {
  return hdt::run_main("hdt-commbench", 1, [&] { return run(argc, argv); });
}
