// options.h: the command line of hdt-commbench.
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

// All flags, checked. The same on all ranks.
struct Options {
  // The collectives to measure, in the order of the command line.
  std::vector<Collective> collectives;
  // The sweep, of sizes of the full buffer: sweep_sizes() has its rules.
  size_t min_bytes = size_t{32} << 20;
  size_t max_bytes = size_t{32} << 20;
  // If `factor` is 1, sizes are so far apart; otherwise they are multiplied by `factor`.
  size_t step_bytes = 0;
  size_t factor = 2;
  // Timed iterations of each round and placement, and untimed ones before them.
  int iterations = 20;
  int warm_up = 5;
  // Verify every element.
  bool check = true;
  std::vector<hdtDataType_t> types{HDT_FLOAT32};
  std::vector<hdtRedOp_t> ops{HDT_SUM};
  std::vector<EngineKind> engines{EngineKind::kHdt};
  // In each round every engine runs its iterations once, in turn.
  int rounds = 1;
  // Each rank is the root once, or else `root` is.
  bool all_roots = false;
  int root = 0;
  // Empty: none.
  std::string json_file;
  // HDT's buffers are memory of hdtMemAlloc. The peers always have ordinary memory.
  bool hdt_memory = false;
  // Deadline of joining and of every operation.
  int64_t timeout_s = 120;
  // Limit for the whole run, if this program starts the ranks.
  int64_t time_limit_s = 3600;
  // Ranks to start on each node. If both this and `nodes` are 0, the process is one rank of a job.
  int local = 0;
  // Nodes to start; 0 counts as one.
  int nodes = 0;
  // The backend of their groups between nodes. Empty: as configured.
  std::string backend;
  // The nodes' daemons are processes of their own, instead of being embedded in a rank.
  bool separate_daemons = false;
};

// A text to print before ending with success: --help, --version.
struct Information {
  std::string text;
};

// The options; or a text to print; or what is wrong, as the line to print before exiting with 2.
std::variant<Options, Information, Status> parse_options(int argc, const char* const* argv);

// A check that needs the group: kInvalidArgument unless -r names one of its ranks.
Status check_root(const Options& options, int ranks);

}  // namespace hdt::bench
