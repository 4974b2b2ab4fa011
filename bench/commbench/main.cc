// main.cc: hdt-commbench, the benchmark of HDT's collectives. Exit code 0: all values right; 1: wrong values
// or a failure; 2: wrong usage.
#include <cstdio>
#include <fstream>

#include "bench/commbench/hdt_communicator.h"
#include "bench/commbench/local_launch.h"
#include "bench/commbench/options.h"
#include "bench/commbench/sweep.h"

namespace {

using namespace hdt;
using namespace hdt::bench;

int write_json(const std::string& path, const std::string& json) {
  std::ofstream file(path, std::ios::trunc);
  file << json;
  file.close();
  if (file) return 0;
  std::fprintf(stderr, "hdt-commbench: --json: cannot write '%s'\n", path.c_str());
  return 1;
}

int run_rank(const Options& options) {
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
  const Result<SweepResult> swept = run_sweep(communicator, options, [](const std::string& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  });
  if (!swept.is_ok()) {
    std::fprintf(stderr, "hdt-commbench: rank %d: %s\n", communicator.rank(), swept.status().message().c_str());
    return 1;
  }
  int code = swept.value().right ? 0 : 1;
  if (communicator.rank() == 0 && !options.json_file.empty()) {
    code |= write_json(options.json_file, swept.value().json);
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = parse_options(argc, argv);
  if (const auto* information = std::get_if<Information>(&parsed)) {
    std::fputs(information->text.c_str(), stdout);
    return 0;
  }
  if (const auto* wrong = std::get_if<Status>(&parsed)) {
    std::fprintf(stderr, "hdt-commbench: %s\n", wrong->message().c_str());
    return 2;
  }
  const Options& options = std::get<Options>(parsed);
  if (options.local > 0 || options.nodes > 0)
    return run_local_ranks(options, [&options] { return run_rank(options); });
  return run_rank(options);
}
