// json_report_test.cc: the JSON document, member by member.
#include "bench/commbench/json_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/bench/example_rows.h"

namespace hdt::bench {
namespace {

TEST(JsonReport, HoldsEverythingOfTheTable) {
  Totals totals;
  for (const RowResult& row : example_rows()) totals.add(row);
  Options options;
  options.hdt_memory = true;
  const auto report =
      nlohmann::json::parse(json_report(options, {{1, 4711, "alpha"}}, example_rows(), totals));
  const auto golden = nlohmann::json::parse(R"({
    "program": "hdt-commbench", "format": 1,
    "ranks": [{"node": 1, "pid": 4711, "host": "alpha"}],
    "iterations": 20, "warm_up": 5, "memory": "hdt",
    "rows": [
      {"collective": "allreduce", "bytes": 8388608, "count": 2097152, "type": "float32", "op": "sum", "root": null,
       "out_of_place": {"time_us": 2500.5, "p50_us": 2450.25, "p99_us": 3000.125, "algorithm_gbps": 3.355,
                        "bus_gbps": 5.0325, "wrong": 0},
       "in_place": {"time_us": 12345.6, "p50_us": 12000.0, "p99_us": 13000.0, "algorithm_gbps": 0.6795,
                    "bus_gbps": 1.01925, "wrong": 3}},
      {"collective": "sendrecv", "bytes": 1024, "count": 512, "type": "bfloat16", "op": null, "root": null,
       "out_of_place": {"time_us": 8.125, "p50_us": 8.0, "p99_us": 9.5, "algorithm_gbps": 0.126, "bus_gbps": 0.126,
                        "wrong": null},
       "in_place": null}],
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
  const auto report = nlohmann::json::parse(json_report({}, {}, {example_rows()[0]}, totals));
  EXPECT_EQ(report["wrong"], 3);
}

}  // namespace
}  // namespace hdt::bench
