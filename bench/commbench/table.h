// table.h: the text table, in the columns of nccl-tests; p50 and p99 stand to the right of them, so that what
// reads nccl-tests' output by column reads this.
#pragma once

#include <string>
#include <vector>

#include "bench/commbench/engine.h"
#include "bench/commbench/measure.h"
#include "bench/commbench/options.h"

namespace hdt::bench {

struct RankInformation {
  int node = 0;
  int pid = 0;
  std::string host;
};

std::string header_text(const Options& options, const std::vector<RankInformation>& ranks,
                        const std::vector<Engine>& engines);
// Above the rows of one collective.
std::string columns_text(Collective what);
std::string row_text(const RowResult& result, EngineKind engine);
// Below the row of a peer whose result was wrong: its speed is no figure to compare with.
std::string wrong_peer_text(const RowResult& result, EngineKind engine);
// What is sent over the interfaces of rank 0's machine in an iteration; empty if nothing was.
std::string sent_text(const RowResult& result, EngineKind engine);

struct Totals {
  int64_t wrong = 0;
  bool checked = true;
  double bus_gbps_sum = 0;
  int measurements = 0;

  // `result_made`: false for an engine that only moves bytes, whose rows cannot be wrong, and for a peer,
  // whose wrong values are its own. `averaged`: whether the bandwidths count.
  void add(const RowResult& result, bool result_made = true, bool averaged = true);
  double average_bus_gbps() const { return measurements == 0 ? 0 : bus_gbps_sum / measurements; }
};
std::string footer_text(const Totals& totals);

}  // namespace hdt::bench
