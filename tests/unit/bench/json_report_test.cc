// json_report_test.cc: the JSON document, member by member.
#include "bench/commbench/json_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/bench/example_rows.h"

namespace hdt::bench {
namespace {

TEST(JsonReport, HoldsEverythingOfTheTable) {
  Totals totals;
  for (const RowResult& row : example_rows()) totals.add(row);  // the third was not measured
  Options options;
  options.hdt_memory = true;
  const auto report = nlohmann::json::parse(
      json_report(options, {{1, 4711, "alpha"}}, example_engines(), example_rows(), totals));
  const auto golden = nlohmann::json::parse(R"({
    "program": "hdt-commbench", "format": 2,
    "ranks": [{"node": 1, "pid": 4711, "host": "alpha"}],
    "engines": [{"name": "hdt", "version": "HDT 0.1.0"}, {"name": "mpi", "version": "MPI 4"}],
    "iterations": 20, "warm_up": 5, "rounds": 1, "memory": "hdt",
    "rows": [
      {"engine": "hdt", "collective": "allreduce", "bytes": 8388608, "count": 2097152, "type": "float32", "op": "sum", "root": null, "lacks": null,
       "out_of_place": {"time_us": 2500.5, "p50_us": 2450.25, "p99_us": 3000.125, "algorithm_gbps": 3.355,
                        "bus_gbps": 5.0325, "wrong": 0, "round_p50_us": [2440.0, 2460.0], "ratio": 1.0,
                        "cpu_s_per_gb": 0.5, "sent_bytes": {"lo": 77}},
       "in_place": {"time_us": 12345.6, "p50_us": 12000.0, "p99_us": 13000.0, "algorithm_gbps": 0.6795,
                    "bus_gbps": 1.01925, "wrong": 3, "round_p50_us": [], "ratio": null, "cpu_s_per_gb": 0.0,
                    "sent_bytes": {}}},
      {"engine": "hdt", "collective": "sendrecv", "bytes": 1024, "count": 512, "type": "bfloat16", "op": null, "root": null, "lacks": null,
       "out_of_place": {"time_us": 8.125, "p50_us": 8.0, "p99_us": 9.5, "algorithm_gbps": 0.126, "bus_gbps": 0.126,
                        "wrong": null, "round_p50_us": [], "ratio": null, "cpu_s_per_gb": 0.0, "sent_bytes": {}},
       "in_place": null},
      {"engine": "mpi", "collective": "allreduce", "bytes": 64, "count": 32, "type": "bfloat16", "op": "avg",
       "root": null, "lacks": "no avg", "out_of_place": null, "in_place": null}],
    "wrong": null, "average_bus_gbps": 2.05925})");
  EXPECT_EQ(report["rows"], golden["rows"]);
  EXPECT_NEAR(report["average_bus_gbps"].get<double>(), 2.05925, 1e-9);
  auto rounded = report;
  rounded["average_bus_gbps"] = 2.05925;
  EXPECT_EQ(rounded, golden);
}

TEST(JsonReport, GivesTheSumOfWrongValuesWhereAllWereChecked) {
  Totals totals;
  totals.add(example_rows()[0]);
  const auto report =
      nlohmann::json::parse(json_report({}, {}, example_engines(), {example_rows()[0]}, totals));
  EXPECT_EQ(report["wrong"], 3);
}

}  // namespace
}  // namespace hdt::bench
