// options.cc: flags as in nccl-tests. CLI11 collects them as text; interpret() then checks each value,
// so that every message names the flag and says what was expected.
#include "bench/commbench/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/whole_number.h"
#include "bench/commbench/sizes.h"

namespace hdt::bench {
namespace {

constexpr const char* kDescription =
    "hdt-commbench: time and bandwidth of HDT's collectives and of its peers', verified. Flags and columns "
    "are those "
    "of nccl-tests.\n"
    "Run it under mpirun or srun, one process a rank, or let it start ranks on this machine itself (--local, "
    "--nodes).";

constexpr const char* kExamples = R"(Examples:
  hdt-commbench allreduce --local 4 -b 8 -e 64M
      4 ranks of one node, sizes doubling from 8 bytes to 64 MiB
  hdt-commbench all --nodes 2 --local 2 -d all -o all -b 8 -e 1M --json result.json
      every collective, type and reduction over 2 nodes of 2 ranks, on loopback addresses
  hdt-commbench allreduce --nodes 2 --local 1 --backend rdma -b 8 -e 64M
      between 2 nodes over another backend than the configured one
  mpirun -np 8 hdt-commbench allreduce allgather -b 1M -e 1G -f 4 --memory hdt
      8 ranks of an MPI job
  hdt-commbench allreduce --nodes 2 --local 1 --engine hdt,gloo,mpi,raw -b 64K -e 64M
      HDT, its peers and the bound, in turn at each size, on the same two processes

Size is that of the full buffer; time is the mean over iterations of the slowest rank's time, p50 and p99 are
percentiles of it; algbw = size / time; busbw = algbw * 2(n-1)/n (allreduce), (n-1)/n (allgather, reduce_scatter,
alltoall, gather, scatter), 1 (broadcast, reduce, sendrecv); cpu = processor seconds of all ranks per GB of bus traffic, hdtcommd included; #wrong counts wrong elements and overwritten guards over all ranks.

Engines are measured in turn, A B A B, --rounds times at each size; ratio = time / time of hdt (or of the first engine
listed): the median over rounds of the ratios of the rounds' p50. A call that an engine lacks is shown as "-".
  gloo  Gloo over TCP. Reduce-scatter is its halving-doubling, which destroys its input: out of place it works on a copy.
  mpi   Open MPI. Ranks started here: over TCP between nodes, by its defaults inside a node.
  raw   The bound, without a reduction or a result. Over several nodes: plain sockets, every rank sending and receiving
        at once the bytes that a node must exchange with the next, divided by its ranks (allreduce 2(m-1)/m of the
        size for m nodes; reduce_scatter, allgather and alltoall (m-1)/m; sendrecv all). In one node: every rank at once a memcpy
        of its share of the minimum memory traffic (read and written bytes / 2): allreduce, allgather, broadcast,
        alltoall and sendrecv the size, reduce_scatter and reduce (n+1)/2n of it, gather and scatter 1/n.
Exit code: 0 all of HDT's values right, 1 wrong values or a failure, 2 wrong usage. A peer's wrong values are named below its row.)";

// The parts of a comma list.
std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  size_t start = 0;
  while (true) {
    const size_t comma = list.find(',', start);
    parts.push_back(list.substr(start, comma - start));
    if (comma == std::string::npos) return parts;
    start = comma + 1;
  }
}

// One or several names that `find` knows, or `all`. Each counts once.
template <typename T, typename Find>
Result<std::vector<T>> parse_names(const char* flag, const std::vector<std::string>& words,
                                   const std::vector<T>& all, Find find) {
  std::vector<T> chosen;
  for (const std::string& word : words) {
    // `all` replaces what was named before it, which it contains.
    if (word == "all") {
      chosen = all;
      continue;
    }
    const auto value = find(word);
    if (!value) {
      std::vector<std::string> names{"all"};
      for (T each : all) names.emplace_back(name_of(each));
      return Status(Code::kInvalidArgument,
                    fmt::format("{}: '{}' is not known; expected {}", flag, word, fmt::join(names, ", ")));
    }
    if (std::find(chosen.begin(), chosen.end(), *value) == chosen.end()) chosen.push_back(*value);
  }
  return chosen;
}

// A whole number from `min` to `max`.
Result<int64_t> parse_whole(const char* flag, const std::string& text, int64_t min, int64_t max) {
  const auto value = whole_number<int64_t>(text);
  if (!value || *value < min || *value > max) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: '{}' given; expected a whole number from {} to {}", flag, text, min, max));
  }
  return *value;
}

// The flags as they were written, with their defaults. Empty: not given.
struct Raw {
  std::vector<std::string> collectives;
  std::string min, max, step, factor, iterations{"20"}, warm_up{"5"}, check{"1"}, types{"float32"},
      ops{"sum"};
  std::string engines{"hdt"}, rounds, root{"0"}, json, memory{"host"}, timeout{"120"}, time_limit{"3600"},
      daemon{"embedded"}, local, nodes, backend;
};

// The flags, for CLI11.
void declare(CLI::App& app, Raw& raw) {
  app.get_formatter()->column_width(34);
  app.set_help_flag("-h,--help", "Print this and exit");
  app.set_version_flag("--version", "hdt-commbench " + std::to_string(HDT_VERSION / 10000) + "." +
                                        std::to_string(HDT_VERSION / 100 % 100) + "." +
                                        std::to_string(HDT_VERSION % 100));
  app.footer(kExamples);
  // As with getopt, the last of equal flags counts.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("COLLECTIVE", raw.collectives,
                 "allreduce, reduce_scatter, allgather, broadcast, reduce, alltoall, gather, scatter, "
                 "sendrecv, barrier (one "
                 "or more), or all");
  const auto add = [&app](const char* flags, std::string& value, const char* type, const char* help) {
    app.add_option(flags, value, help)->type_name(type);
  };
  add("-b,--minbytes", raw.min, "SIZE",
      "Minimum size, with suffix K, M or G (default 32M, or -e's if that is less)");
  add("-e,--maxbytes", raw.max, "SIZE", "Greatest size (default: -b's)");
  add("-i,--stepbytes", raw.step, "SIZE", "Sizes are this far apart, instead of multiplied");
  add("-f,--stepfactor", raw.factor, "N", "Sizes are multiplied by this (default 2)");
  add("-n,--iters", raw.iterations, "N", "Timed iterations (default 20)");
  add("-w,--warmup_iters", raw.warm_up, "N", "Untimed iterations before them (default 5)");
  add("-c,--check", raw.check, "0|1", "Verify every element of the results (default 1)");
  add("-d,--datatype", raw.types, "TYPE",
      "int32, int64, float16, bfloat16, float32, float64, a comma list, or all (default float32)");
  add("-o,--op", raw.ops, "OP",
      "sum, prod, min, max, avg, band, bor, bxor, a comma list, or all (default sum)");
  add("-r,--root", raw.root, "RANK", "Root of broadcast and reduce, or all (default 0)");
  add("--engine", raw.engines, "ENGINE",
      "hdt, gloo, mpi, raw, a comma list, or all: what to measure, in turn (default hdt)");
  add("--rounds", raw.rounds, "N", "Turns of every engine at each size (default 5; of one engine 1)");
  add("--json", raw.json, "FILE", "Write the results as JSON, too");
  add("--memory", raw.memory, "hdt|host", "Buffers from hdtMemAlloc, or ordinary memory (default host)");
  add("--timeout", raw.timeout, "SECONDS",
      "Deadline of joining the group and of every operation (default 120)");
  add("--local", raw.local, "N", "Start N ranks on this machine (with --nodes: on each node)");
  add("--nodes", raw.nodes, "M",
      "Start M nodes on this machine, each with its own daemon on a loopback address");
  add("--backend", raw.backend, "NAME",
      "With --nodes: the backend between them; options for it as HDT_BACKEND_NAME_KEY (default as "
      "configured)");
  add("--daemon", raw.daemon, "embedded|separate",
      "With --local or --nodes: daemons inside the first rank of each node, or a hdtcommd for each (default "
      "embedded)");
  add("--time-limit", raw.time_limit, "SECONDS",
      "With --local or --nodes: end the ranks after this (default 3600)");
}

// Assigns the value, or returns the error from the calling function.
#define HDT_BENCH_ASSIGN(target, expression)       \
  do {                                             \
    auto result_ = (expression);                   \
    if (!result_.is_ok()) return result_.status(); \
    (target) = std::move(result_.value());         \
  } while (0)

Status with_flag(const char* flag, const Status& status) {
  return {status.code(), std::string(flag) + ": " + status.message()};
}

// The sizes. If only one of -b and -e is given, it bounds the other.
Result<Options> interpret_sizes(const Raw& raw, Options options) {
  const auto size_of = [](const char* flag, const std::string& text) -> Result<size_t> {
    Result<size_t> size = parse_size(text);
    return size.is_ok() ? size : Result<size_t>(with_flag(flag, size.status()));
  };
  // -e first: the default of -b depends on it.
  if (!raw.max.empty()) HDT_BENCH_ASSIGN(options.max_bytes, size_of("-e", raw.max));
  if (!raw.min.empty()) {
    HDT_BENCH_ASSIGN(options.min_bytes, size_of("-b", raw.min));
    if (raw.max.empty()) options.max_bytes = options.min_bytes;
  } else {
    options.min_bytes = std::min(options.min_bytes, options.max_bytes);
  }
  if (!raw.step.empty()) {
    if (!raw.factor.empty()) return Status(Code::kInvalidArgument, "-i: expected either -i or -f, not both");
    HDT_BENCH_ASSIGN(options.step_bytes, size_of("-i", raw.step));
    options.factor = 1;
  }
  if (!raw.factor.empty()) {
    int64_t factor = 0;
    HDT_BENCH_ASSIGN(factor, parse_whole("-f", raw.factor, 2, 1 << 20));
    options.factor = static_cast<size_t>(factor);
  }
  // Made only to be checked; run_sweep() makes them again.
  Result<std::vector<size_t>> sizes =
      sweep_sizes(options.min_bytes, options.max_bytes, options.step_bytes, options.factor);
  if (!sizes.is_ok()) return sizes.status();
  return options;
}

// All other flags, and the rules between them.
Result<Options> interpret(const Raw& raw, bool json_given) {
  Options options;
  if (raw.collectives.empty()) {
    return Status(Code::kInvalidArgument, "COLLECTIVE: none given; expected one or more, or all");
  }
  HDT_BENCH_ASSIGN(options, interpret_sizes(raw, options));
  HDT_BENCH_ASSIGN(options.collectives,
                   parse_names("COLLECTIVE", raw.collectives, all_collectives(), find_collective));
  HDT_BENCH_ASSIGN(options.types, parse_names("-d", split(raw.types), all_types(), find_type));
  HDT_BENCH_ASSIGN(options.ops, parse_names("-o", split(raw.ops), all_ops(), find_op));
  HDT_BENCH_ASSIGN(options.engines, parse_names("--engine", split(raw.engines), all_engines(), find_engine));
  // Rounds are for comparing; with one engine there is nothing to take turns with.
  options.rounds = options.engines.size() > 1 ? kDefaultRounds : 1;
  if (!raw.rounds.empty()) HDT_BENCH_ASSIGN(options.rounds, parse_whole("--rounds", raw.rounds, 1, 10000));
  HDT_BENCH_ASSIGN(options.iterations, parse_whole("-n", raw.iterations, 1, 1000000));
  HDT_BENCH_ASSIGN(options.warm_up, parse_whole("-w", raw.warm_up, 0, 1000000));
  int64_t check = 0;
  HDT_BENCH_ASSIGN(check, parse_whole("-c", raw.check, 0, 1));
  options.check = check == 1;
  options.all_roots = raw.root == "all";
  if (!options.all_roots) HDT_BENCH_ASSIGN(options.root, parse_whole("-r", raw.root, 0, INT32_MAX));
  if (raw.memory != "hdt" && raw.memory != "host") {
    return Status(Code::kInvalidArgument, "--memory: '" + raw.memory + "' given; expected hdt or host");
  }
  options.hdt_memory = raw.memory == "hdt";
  if (raw.daemon != "embedded" && raw.daemon != "separate") {
    return Status(Code::kInvalidArgument,
                  "--daemon: '" + raw.daemon + "' given; expected embedded or separate");
  }
  options.separate_daemons = raw.daemon == "separate";
  // Only a run that starts its own ranks can start daemons for them.
  if (options.separate_daemons && raw.local.empty() && raw.nodes.empty()) {
    return Status(
        Code::kInvalidArgument,
        "--daemon: expected only with --local or --nodes; HDT_SOCKET names the daemon of a rank otherwise");
  }
  if (!raw.backend.empty() && raw.nodes.empty()) {
    return Status(Code::kInvalidArgument,
                  "--backend: expected only with --nodes; [class.default] of the daemons' configuration says "
                  "it otherwise");
  }
  options.backend = raw.backend;
  if (json_given && raw.json.empty())
    return Status(Code::kInvalidArgument, "--json: '' given; expected the name of a file");
  options.json_file = raw.json;
  HDT_BENCH_ASSIGN(options.timeout_s, parse_whole("--timeout", raw.timeout, 1, 86400));
  HDT_BENCH_ASSIGN(options.time_limit_s, parse_whole("--time-limit", raw.time_limit, 1, 864000));
  if (!raw.local.empty())
    HDT_BENCH_ASSIGN(options.local, parse_whole("--local", raw.local, 1, kMaxLocalRanks));
  if (!raw.nodes.empty())
    HDT_BENCH_ASSIGN(options.nodes, parse_whole("--nodes", raw.nodes, 1, kMaxLocalNodes));
  // Both factors are bounded, so the product does not overflow.
  if (options.local * std::max(options.nodes, 1) > kMaxLocalRanks) {
    return Status(Code::kInvalidArgument,
                  fmt::format("--local: {} ranks on each of {} nodes; expected at most {} ranks",
                              options.local, options.nodes, kMaxLocalRanks));
  }
  return options;
}

}  // namespace

std::variant<Options, Information, Status> parse_options(int argc, const char* const* argv) {
  CLI::App app(kDescription, "hdt-commbench");
  Raw raw;
  declare(app, raw);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return Information{app.help()};
  } catch (const CLI::CallForVersion& version) {
    return Information{std::string(version.what()) + "\n"};
  } catch (const CLI::ParseError& error) {
    return Status(Code::kInvalidArgument, std::string(error.what()) + " (--help lists the flags)");
  }
  Result<Options> options = interpret(raw, app.count("--json") > 0);
  if (!options.is_ok()) return options.status();
  return options.take();
}

Status check_root(const Options& options, int ranks) {
  if (options.all_roots || options.root < ranks) return Status::ok();
  return {Code::kInvalidArgument, fmt::format("-r: '{}' given; expected a rank of the group, 0 to {}, or all",
                                              options.root, ranks - 1)};
}

}  // namespace hdt::bench
