// json_report.h: the results of a run as one JSON document (--json).
#pragma once

#include <string>
#include <vector>

#include "bench/commbench/table.h"

namespace hdt::bench {

// {"program", "format", "ranks": [{node, pid, host}], "engines": [{name, version}], "iterations",
// "warm_up", "rounds", "memory", "rows": [...], "wrong", "average_bus_gbps"}. A row is one engine at one
// size. Times are microseconds, bandwidths 10^9 bytes/s. Null means not measured or not checked; "lacks"
// says why an engine was not measured.
std::string json_report(const Options& options, const std::vector<RankInformation>& ranks,
                        const std::vector<Engine>& engines, const std::vector<RowResult>& rows,
                        const Totals& totals);

}  // namespace hdt::bench
