// table.h: the text table. Its first columns are those of nccl-tests, and p50 and p99 stand to the right
// of them, so that programs which read nccl-tests' output by column can read this.
#pragma once

#include <string>
#include <vector>

#include "bench/commbench/engine.h"
#include "bench/commbench/measure.h"
#include "bench/commbench/options.h"

namespace hdt::bench {

// A rank in the header.
struct RankInformation {
  int node = 0;
  int pid = 0;
  std::string host;
};

// The lines above the whole table. All lines that are no rows begin with "#".
std::string header_text(const Options& options, const std::vector<RankInformation>& ranks,
                        const std::vector<Engine>& engines);
// The heading of the rows of one collective.
std::string columns_text(Collective what);
// One row; "-" where the engine lacks the call.
std::string row_text(const RowResult& result, EngineKind engine);
// A line for below the row of a peer whose result was wrong: its speed is nothing to compare with.
std::string wrong_peer_text(const RowResult& result, EngineKind engine);
// The bytes sent over the interfaces of rank 0's machine in an iteration. Empty if there were none.
std::string sent_text(const RowResult& result, EngineKind engine);

// Sums over the rows, for the footer.
struct Totals {
  int64_t wrong = 0;
  // Every result that should be verified was.
  bool checked = true;
  double bus_gbps_sum = 0;
  // How many placements bus_gbps_sum is made of.
  int measurements = 0;

  // Adds a row. `result_made` is false if wrong values do not count: for an engine that only moves
  // bytes, and for a peer. `averaged`: whether its bandwidths count.
  void add(const RowResult& result, bool result_made = true, bool averaged = true);
  // The mean over all placements that count; 0 if there are none.
  double average_bus_gbps() const { return measurements == 0 ? 0 : bus_gbps_sum / measurements; }
};
// The two lines below the whole table.
std::string footer_text(const Totals& totals);

}  // namespace hdt::bench
