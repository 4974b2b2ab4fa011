// trace_file_test.cc: recorded operations as slices: times of other nodes turned into ours, overlapping ones
// in lanes.
#include "tools/hdtctl/trace_file.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace hdt::ctl {
namespace {

using nlohmann::json;

json operation(const std::string& kind, int64_t entered, int64_t started, int64_t ended) {
  return json::array({kind, kind + " of 8", 0, 32, -1, 0, entered, started, ended, 0});
}

json node(const std::string& name, int64_t offset, int64_t now, const json& operations) {
  const json rank = {{"rank", 3}, {"operations", operations}};
  const json group = {{"name", "group aa"}, {"group_class", "dp"}, {"local", json::array({rank})}};
  return {{"name", name}, {"offset_ns", offset}, {"now_ns", now}, {"groups", json::array({group})}};
}

json answer(const std::vector<json>& nodes) { return {{"nodes", nodes}}; }

std::map<std::string, json> slices_of(const json& trace) {
  std::map<std::string, json> slices;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["cat"] == "dp") slices[event["name"]] = event;
  }
  return slices;
}

TEST(TraceFile, TimesAreThoseOfTheNodeThatWasAsked) {
  const json trace =
      trace_of(answer({node("n0", 0, 9'000, json::array({operation("barrier", 1'000, 2'000, 4'000)})),
                       node("n1", 500'000, 509'000, json::array({operation("send", 502'000, 0, 503'000)}))}));
  const auto slices = slices_of(trace);
  EXPECT_EQ(slices.at("barrier")["ts"], 1.0);
  EXPECT_EQ(slices.at("barrier")["dur"], 3.0);
  EXPECT_EQ(slices.at("send")["ts"], 2.0);
  EXPECT_NE(slices.at("send")["pid"], slices.at("barrier")["pid"]);
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "wait for others" && event["pid"] == slices.at("barrier")["pid"]) {
      EXPECT_EQ(event["dur"], 1.0);
    }
  }
}

TEST(TraceFile, OperationsThatOverlapTakeLanes) {
  const json operations = {operation("a", 1'000, 0, 5'000), operation("b", 2'000, 0, 3'000),
                           operation("c", 6'000, 0, 7'000)};
  const auto slices = slices_of(trace_of(answer({node("n0", 0, 9'000, operations)})));
  EXPECT_NE(slices.at("a")["tid"], slices.at("b")["tid"]);
  EXPECT_EQ(slices.at("a")["tid"], slices.at("c")["tid"]);
}

TEST(TraceFile, WhatIsUnderWayLastsUntilNow) {
  const auto slices =
      slices_of(trace_of(answer({node("n0", 0, 9'000, json::array({operation("barrier", 1'000, 0, 0)}))})));
  EXPECT_EQ(slices.at("barrier")["dur"], 8.0);
  EXPECT_EQ(slices.at("barrier")["args"]["under_way"], true);
}

}  // namespace
}  // namespace hdt::ctl
