// engines.cc: makes the engines that were asked for. Gloo and Open MPI are optional when the program is
// built.
#include "bench/commbench/engines.h"

#include <algorithm>

#include "bench/commbench/raw_communicator.h"
#include "hdt/hdt.hpp"
#ifdef HDT_BENCH_WITH_MPI
#include "bench/commbench/mpi_communicator.h"
#endif
#ifdef HDT_BENCH_WITH_GLOO
#include "bench/commbench/gloo_communicator.h"
#endif

namespace hdt::bench {
namespace {

// HDT_VERSION is major x 10000 + minor x 100 + patch.
std::string hdt_version() {
  const int version = hdt::version();
  return "HDT " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

// A peer with its version, or why it could not be made.
struct Made {
  Result<std::unique_ptr<Communicator>> communicator;
  std::string version;
};

// Connects one peer. All ranks come here in the same order, as each peer exchanges addresses over `hdt`.
Made make_peer(EngineKind kind, const Options& options, Communicator& hdt) {
#ifdef HDT_BENCH_WITH_MPI
  if (kind == EngineKind::kMpi) return {make_mpi_communicator(hdt), mpi_version()};
#endif
#ifdef HDT_BENCH_WITH_GLOO
  if (kind == EngineKind::kGloo) return {make_gloo_communicator(hdt, options.timeout_s), gloo_version()};
#endif
  if (kind == EngineKind::kRaw) return {make_raw_communicator(hdt, options.timeout_s), raw_version(hdt)};
  return {check_engines_are_built({kind}), ""};
}

}  // namespace

Status check_engines_are_built(const std::vector<EngineKind>& kinds) {
  // Unused if both peers are built in.
  [[maybe_unused]] const auto missing = [&kinds](EngineKind kind, const char* package) -> Status {
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) return Status::ok();
    return {Code::kInvalidArgument, std::string("--engine: ") + name_of(kind) + " is not built in; install " +
                                        package + " and build again"};
  };
#ifndef HDT_BENCH_WITH_MPI
  HDT_RETURN_IF_ERROR(missing(EngineKind::kMpi, "libopenmpi-dev and openmpi-bin"));
#endif
#ifndef HDT_BENCH_WITH_GLOO
  HDT_RETURN_IF_ERROR(missing(EngineKind::kGloo, "libgloo-dev"));
#endif
  return Status::ok();
}

// HDT's communicator exists already; it is only named here.
Result<Engines> Engines::make(const Options& options, Communicator& hdt) {
  Engines engines;
  for (EngineKind kind : options.engines) {
    if (kind == EngineKind::kHdt) {
      engines.list_.push_back({kind, hdt_version(), &hdt});
      continue;
    }
    Made made = make_peer(kind, options, hdt);
    if (!made.communicator.is_ok()) return made.communicator.status();
    engines.peers_.push_back(made.communicator.take());
    engines.list_.push_back({kind, std::move(made.version), engines.peers_.back().get()});
  }
  return engines;
}

}  // namespace hdt::bench
