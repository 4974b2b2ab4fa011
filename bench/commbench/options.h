// options.h: hdt-commbench's command line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "bench/commbench/names.h"

namespace hdt::bench {

inline constexpr int kMaxLocalRanks = 1024;
inline constexpr int kMaxLocalNodes = 64;
inline constexpr int kDefaultRounds = 5;  // where several engines are measured

struct Options {
  std::vector<Collective> collectives;
  size_t min_bytes = size_t{32} << 20;
  size_t max_bytes = size_t{32} << 20;
  size_t step_bytes = 0;
  size_t factor = 2;
  int iterations = 20;
  int warm_up = 5;
  bool check = true;
  std::vector<hdtDataType_t> types{HDT_FLOAT32};
  std::vector<hdtRedOp_t> ops{HDT_SUM};
  std::vector<EngineKind> engines{EngineKind::kHdt};
  int rounds = 1;  // of iterations of every engine, in turn
  bool all_roots = false;
  int root = 0;
  std::string json_file;  // empty: none
  bool hdt_memory = false;
  int64_t timeout_s = 120;        // of each operation
  int64_t time_limit_s = 3600;    // of the whole run, where the program started the ranks itself
  int local = 0;                  // ranks per node to start; 0: this process is one rank of a job
  int nodes = 0;                  // nodes to start; 0: as one
  std::string backend;            // that their groups use between nodes; empty: as configured
  bool separate_daemons = false;  // of those nodes: processes of their own instead of embedded in a rank
};

// Text to print and end with success: --help, --version.
struct Information {
  std::string text;
};

// Options, or Information, or what is wrong (the whole line to print before exiting with 2).
std::variant<Options, Information, Status> parse_options(int argc, const char* const* argv);

// What can only be checked when the group is known: -r names one of its ranks.
Status check_root(const Options& options, int ranks);

}  // namespace hdt::bench
