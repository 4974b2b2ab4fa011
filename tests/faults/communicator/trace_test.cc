// trace_test.cc: hdtctl trace writes what ranks of two nodes did, also after one is dead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/faults/communicator/rank_process.h"

namespace hdt::testing {
namespace {

using ::testing::HasSubstr;

TEST(Trace, HasTheOperationsOfAllRanks) {
  World world(2);
  const auto ranks = world.group({0, 0, 1}, kAnswerMs, "dp");
  for (const char* call : {"barrier", "allreduce 1000 4 0", "broadcast 10 4 2"}) {
    for (const auto& rank : ranks) rank->start(call);
    for (const auto& rank : ranks) ASSERT_EQ(rank->finish().result, HDT_SUCCESS);
  }
  ranks[2]->process().signal(SIGKILL);
  ASSERT_EQ(ranks[0]->call("barrier").result, HDT_ERR_RANK_LOST);
  const std::string path = world.folder().file("trace.json");
  const ProgramRun run =
      run_program({HDT_HDTCTL, "--socket", world.node(0).socket(), "trace", "--out", path});
  ASSERT_EQ(run.status, 0) << run.errors;
  std::ifstream file(path);
  const auto trace = nlohmann::json::parse(file, nullptr, false);
  ASSERT_TRUE(trace.is_object());
  std::map<std::string, std::set<std::pair<int, int>>> seen;  // by call: (node, rank's lane)
  std::set<std::string> names;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "M") {
      names.insert(event["args"]["name"].get<std::string>());
    } else {
      ASSERT_EQ(event["ph"], "X");
      EXPECT_GE(event["dur"].get<double>(), 0);
      seen[event["name"]].insert({event["pid"].get<int>(), event["tid"].get<int>()});
    }
  }
  EXPECT_TRUE(names.contains("node n0") && names.contains("node n1"));
  for (const char* call : {"barrier", "allreduce", "broadcast"}) EXPECT_EQ(seen[call].size(), 3U) << call;
}

TEST(Trace, NeedsAFileThatCanBeWritten) {
  World world(1);
  const auto trace = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {HDT_HDTCTL, "--socket", world.node(0).socket(), "trace"});
    return run_program(words);
  };
  EXPECT_EQ(trace({}).status, 2);
  const ProgramRun run = trace({"--out", "/nowhere/trace.json"});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.errors, HasSubstr("/nowhere/trace.json"));
}

}  // namespace
}  // namespace hdt::testing
