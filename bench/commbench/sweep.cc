// sweep.cc: the loops of a run, in the order of nccl-tests: collective, type, reduction, root, size.
#include "bench/commbench/sweep.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <optional>

#include "bench/commbench/json_report.h"
#include "bench/commbench/measure.h"
#include "bench/commbench/sizes.h"
#include "bench/commbench/table.h"

namespace hdt::bench {
namespace {

constexpr uint64_t kSeed = 0x4844543031;

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

std::vector<int> roots_of(Collective what, const Options& options, int ranks) {
  if (!rooted(what)) return {0};
  if (!options.all_roots) return {options.root};
  std::vector<int> roots;
  for (int rank = 0; rank < ranks; ++rank) roots.push_back(rank);
  return roots;
}

class Sweep {
 public:
  Sweep(Communicator& communicator, const Options& options, Measurer measurer, std::vector<size_t> sizes,
        const std::function<void(const std::string&)>& print)
      : communicator_(communicator),
        options_(options),
        measurer_(std::move(measurer)),
        sizes_(std::move(sizes)),
        print_(print) {}

  Status run_collective(Collective what) {
    print_on_root(columns_text(what));
    for (hdtDataType_t type : options_.types) {
      // What does not reduce ignores the op and runs once.
      const size_t ops = reduces(what) ? options_.ops.size() : 1;
      for (size_t i = 0; i < ops; ++i) HDT_RETURN_IF_ERROR(run_type(what, type, options_.ops[i]));
    }
    return Status::ok();
  }

  Result<SweepResult> finish(const std::vector<RankInformation>& ranks) {
    print_on_root(footer_text(totals_));
    SweepResult result;
    result.right = totals_.wrong == 0 && measurer_.wrong_here() == 0;
    if (communicator_.rank() == 0) result.json = json_report(options_, ranks, rows_, totals_);
    return result;
  }

  void print_on_root(const std::string& text) const {
    if (communicator_.rank() == 0) print_(text);
  }

 private:
  Status run_type(Collective what, hdtDataType_t type, hdtRedOp_t op) {
    Pattern pattern(type, reduces(what) ? std::optional(op) : std::nullopt, communicator_.ranks(), kSeed,
                    options_.max_bytes / element_bytes(type));
    for (int root : roots_of(what, options_, communicator_.ranks())) {
      for (size_t size : sizes_) {
        Result<RowResult> row = measurer_.measure({what, size, type, op, root}, pattern);
        if (!row.is_ok()) {
          return {row.status().code(),
                  fmt::format("{} of {} bytes, {}, {}, root {}: {}", name_of(what), size, name_of(type),
                              name_of(op), root, row.status().to_string())};
        }
        totals_.add(row.value());
        print_on_root(row_text(row.value()));
        rows_.push_back(row.take());
      }
    }
    return Status::ok();
  }

  Communicator& communicator_;
  const Options& options_;
  Measurer measurer_;
  std::vector<size_t> sizes_;
  const std::function<void(const std::string&)>& print_;
  std::vector<RowResult> rows_;
  Totals totals_;
};

}  // namespace

Result<SweepResult> run_sweep(Communicator& communicator, const Options& options,
                              const std::function<void(const std::string&)>& print) {
  Result<std::vector<size_t>> sizes =
      sweep_sizes(options.min_bytes, options.max_bytes, options.step_bytes, options.factor);
  if (!sizes.is_ok()) return sizes.status();
  Result<Measurer> measurer =
      Measurer::make(communicator, {options.iterations, options.warm_up, options.check}, options.max_bytes);
  if (!measurer.is_ok()) return measurer.status();
  Result<std::vector<RankInformation>> ranks = gather_ranks(communicator);
  if (!ranks.is_ok()) return ranks.status();

  Sweep sweep(communicator, options, measurer.take(), sizes.take(), print);
  sweep.print_on_root(header_text(options, ranks.value()));
  for (Collective what : options.collectives) HDT_RETURN_IF_ERROR(sweep.run_collective(what));
  return sweep.finish(ranks.value());
}

}  // namespace hdt::bench
