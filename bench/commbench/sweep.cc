// sweep.cc: the loops of a run, in the order of nccl-tests: collective, type, reduction, root, size.
#include "bench/commbench/sweep.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <set>

#include "bench/commbench/json_report.h"
#include "bench/commbench/measure.h"
#include "bench/commbench/sizes.h"
#include "bench/commbench/table.h"

namespace hdt::bench {
namespace {

// The same on all ranks: they compute each other's data ("HDT01").
constexpr uint64_t kSeed = 0x4844543031;

// Each rank sends this about itself. Its size is a multiple of 4, as gather_all() wants.
struct RankRecord {
  int32_t pid;
  char host[60];
};

Result<std::vector<RankInformation>> gather_ranks(Communicator& communicator) {
  RankRecord mine{};
  mine.pid = static_cast<int32_t>(getpid());
  if (gethostname(mine.host, sizeof mine.host - 1) != 0) return Status::from_errno("gethostname", errno);
  std::vector<RankRecord> records(static_cast<size_t>(communicator.ranks()));
  HDT_RETURN_IF_ERROR(communicator.gather_all(&mine, sizeof mine, records.data()));
  std::vector<RankInformation> ranks;
  for (int rank = 0; rank < communicator.ranks(); ++rank) {
    RankRecord& record = records[static_cast<size_t>(rank)];
    record.host[sizeof record.host - 1] = 0;
    ranks.push_back({communicator.node_of(rank), record.pid, record.host});
  }
  return ranks;
}

// One root for collectives that have none.
std::vector<int> roots_of(Collective what, const Options& options, int ranks) {
  if (!rooted(what)) return {0};
  if (!options.all_roots) return {options.root};
  std::vector<int> roots;
  for (int rank = 0; rank < ranks; ++rank) roots.push_back(rank);
  return roots;
}

// The engine that ratios refer to and that is judged: HDT if it is measured, otherwise the first one.
size_t reference_of(const std::vector<Engine>& engines) {
  for (size_t i = 0; i < engines.size(); ++i) {
    if (engines[i].kind == EngineKind::kHdt) return i;
  }
  return 0;
}

// The state of a run: the engines' measurers, and the rows so far.
class Sweep {
 public:
  Sweep(const std::vector<Engine>& engines, const Options& options, std::vector<Measurer> measurers,
        std::vector<size_t> sizes, const std::function<void(const std::string&)>& print)
      : engines_(engines),
        communicator_(*engines[0].communicator),
        options_(options),
        measurers_(std::move(measurers)),
        sizes_(std::move(sizes)),
        print_(print) {}

  // The heading, all rows, and at last what was sent over the interfaces.
  Status run_collective(Collective what) {
    print_on_root(columns_text(what));
    const size_t first = rows_.size();
    // A collective without a type or a reduction ignores the flag, and runs once.
    const size_t types = moves_data(what) ? options_.types.size() : 1;
    const size_t ops = reduces(what) ? options_.ops.size() : 1;
    for (size_t type = 0; type < types; ++type) {
      for (size_t op = 0; op < ops; ++op) {
        HDT_RETURN_IF_ERROR(run_type(what, options_.types[type], options_.ops[op]));
      }
    }
    for (size_t i = first; i < rows_.size(); ++i)
      print_on_root(sent_text(rows_[i], engines_[rows_[i].engine].kind));
    return Status::ok();
  }

  // Prints the footer, and makes the report.
  Result<SweepResult> finish(const std::vector<RankInformation>& ranks) {
    print_on_root(footer_text(totals_));
    SweepResult result;
    result.right = totals_.wrong == 0;
    result.right = result.right && measurers_[reference_of(engines_)].wrong_here() == 0;
    if (communicator_.rank() == 0) result.json = json_report(options_, ranks, engines_, rows_, totals_);
    return result;
  }

  void print_on_root(const std::string& text) const {
    if (communicator_.rank() == 0 && !text.empty()) print_(text);
  }

 private:
  // One pattern serves all roots and sizes.
  Status run_type(Collective what, hdtDataType_t type, hdtRedOp_t op) {
    // For indices up to the largest size, so that all sizes share the data.
    Pattern pattern(type, reduces(what) ? std::optional(op) : std::nullopt, communicator_.ranks(), kSeed,
                    options_.max_bytes / element_bytes(type));
    for (int root : roots_of(what, options_, communicator_.ranks())) {
      for (size_t size : moves_data(what) ? sizes_ : std::vector<size_t>{0}) {
        Result<std::vector<RowResult>> rows = measure_in_turn(
            measurers_, reference_of(engines_), options_.rounds, {what, size, type, op, root}, pattern);
        if (!rows.is_ok()) {
          return {rows.status().code(),
                  fmt::format("{} of {} bytes, {}, {}, root {}: {}", name_of(what), size, name_of(type),
                              name_of(op), root, rows.status().to_string())};
        }
        for (RowResult& row : rows.value()) add(std::move(row));
      }
    }
    return Status::ok();
  }

  // A peer's wrong values are printed, but they do not fail the run: it judges HDT.
  void add(RowResult row) {
    const Engine& engine = engines_[row.engine];
    const bool judged = row.engine == reference_of(engines_);
    totals_.add(row, judged && engine.communicator->makes_results(), judged);
    print_on_root(row_text(row, engine.kind));
    if (!judged && row.wrong() != 0) print_on_root(wrong_peer_text(row, engine.kind));
    const std::string missing = std::string(name_of(engine.kind)) + ": " + row.lacks;
    if (!row.lacks.empty() && said_.insert(missing).second) print_on_root("# " + missing + "\n");
    rows_.push_back(std::move(row));
  }

  const std::vector<Engine>& engines_;
  Communicator& communicator_;
  const Options& options_;
  std::vector<Measurer> measurers_;
  std::vector<size_t> sizes_;
  const std::function<void(const std::string&)>& print_;
  std::vector<RowResult> rows_;
  // The calls that engines lack, as they were printed. Each is printed once.
  std::set<std::string> said_;
  Totals totals_;
};

}  // namespace

Result<SweepResult> run_sweep(const std::vector<Engine>& engines, pid_t daemon, const Options& options,
                              const std::function<void(const std::string&)>& print) {
  Result<std::vector<size_t>> sizes =
      sweep_sizes(options.min_bytes, options.max_bytes, options.step_bytes, options.factor);
  if (!sizes.is_ok()) return sizes.status();
  // Buffers for the largest size; allocation is not part of what is measured.
  std::vector<Measurer> measurers;
  for (const Engine& engine : engines) {
    Result<Measurer> measurer =
        Measurer::make(*engine.communicator, {options.iterations, options.warm_up, options.check},
                       options.max_bytes, daemon);
    if (!measurer.is_ok()) return measurer.status();
    measurers.push_back(measurer.take());
  }
  Result<std::vector<RankInformation>> ranks = gather_ranks(*engines[0].communicator);
  if (!ranks.is_ok()) return ranks.status();

  Sweep sweep(engines, options, std::move(measurers), sizes.take(), print);
  sweep.print_on_root(header_text(options, ranks.value(), engines));
  for (Collective what : options.collectives) HDT_RETURN_IF_ERROR(sweep.run_collective(what));
  return sweep.finish(ranks.value());
}

}  // namespace hdt::bench
