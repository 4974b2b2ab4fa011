// explain_test.cc: hdtctl explain against real daemons: what it says is what they are configured to, and wrong questions are
// refused with words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/integration/communicator/rank_threads.h"

namespace hdt::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Runs `body` while a group with this placement is there; it is asked about at node 0.
void with_group(const Nodes& nodes, const Placement& placement, const std::function<void()>& body) {
  nodes.run(placement, [&](Rank& self) {
    if (self.rank == 0) body();
    HDT_EXPECT(hdtBarrier(self.comm, nullptr));
  });
}

ProgramRun explain(const Nodes& nodes, std::vector<std::string> words) {
  words.insert(words.begin(), {HDT_HDTCTL, "--socket", nodes.socket(0), "explain"});
  return run_program(words);
}

nlohmann::json explained(const Nodes& nodes, std::vector<std::string> words) {
  words.insert(words.end(), {"--group", "default", "--json"});
  const ProgramRun done = explain(nodes, words);
  EXPECT_EQ(done.status, 0) << done.errors;
  return nlohmann::json::parse(done.output, nullptr, false);
}

TEST(Explain, NamesWhatIsPickedAndWhyTheOthersAreNot) {
  const Nodes nodes;
  with_group(nodes, {0, 1, 2}, [&] {
    const auto small = explained(nodes, {"allreduce", "32K"});
    ASSERT_TRUE(small.is_object());
    EXPECT_EQ(small["call"], "allreduce of 8192 float32, sum");
    EXPECT_EQ(small["class"], "default");
    EXPECT_EQ(small["ranks"], 3);
    EXPECT_EQ(small["nodes"], 3);
    EXPECT_EQ(small["pieces"], 1);
    EXPECT_EQ(small["piece_bytes"], 32768);
    EXPECT_EQ(small["configured"], "auto");
    EXPECT_EQ(small["candidates"].size(), 6U);
    const auto large = explained(nodes, {"allreduce", "64M", "--type", "bfloat16"});
    EXPECT_EQ(large["call"], "allreduce of 33554432 bfloat16, sum");
    EXPECT_EQ(large["picked"], "ring");
    for (const auto& candidate : large["candidates"]) {
      EXPECT_EQ(candidate.contains("left_out"), candidate["algorithm"] != "ring") << candidate;
    }
    const std::string id = large["group"];
    const ProgramRun table = explain(nodes, {"broadcast", "64M", "--root", "2", "--group", id});
    EXPECT_EQ(table.status, 0) << table.errors;
    EXPECT_THAT(table.output, AllOf(HasSubstr("root 2 in group " + id), HasSubstr("picked: ring\n"),
                                    HasSubstr("left out: "), HasSubstr(" * ring")));
  });
}

TEST(Explain, TheConfiguredAlgorithmIsTheOneThatIsTaken) {
  const Nodes nodes({"--class.default.algorithm", "bruck"});
  with_group(nodes, {0, 1, 2}, [&] {
    const auto possible = explained(nodes, {"reduce_scatter", "1K"});
    EXPECT_EQ(possible["configured"], "bruck");
    EXPECT_EQ(possible["picked"], "bruck");
    const auto impossible = explained(nodes, {"allreduce", "1M"});
    EXPECT_EQ(impossible["picked"], "ring");
    EXPECT_THAT(impossible["why"].get<std::string>(),
                HasSubstr("class default has algorithm \"bruck\", but"));
  });
}

TEST(Explain, AGroupOfOneNodeNeedsNoAlgorithm) {
  const Nodes nodes;
  with_group(nodes, {0, 0}, [&] {
    EXPECT_TRUE(explained(nodes, {"allreduce", "1M"})["picked"].is_null());
    const ProgramRun table = explain(nodes, {"barrier", "0", "--group", "default"});
    EXPECT_THAT(table.output, AllOf(HasSubstr("picked: none"), HasSubstr("all ranks are on one node")));
  });
}

TEST(Explain, WrongQuestionsAreRefusedWithWords) {
  const Nodes nodes;
  with_group(nodes, {0, 1}, [&] {
    const auto refused = [&](int status, const std::vector<std::string>& words, const std::string& text) {
      const ProgramRun done = explain(nodes, words);
      EXPECT_EQ(done.status, status) << done.output;
      EXPECT_THAT(done.errors, HasSubstr(text));
    };
    refused(2, {"allreduce", "1M"}, "--group");
    refused(2, {"allreduce", "--group", "default"}, "SIZE");
    refused(2, {"allreduce", "much", "--group", "default"}, "SIZE");
    refused(2, {"alltogether", "1M", "--group", "default"}, "'alltogether' given; expected one of allreduce");
    refused(2, {"allreduce", "1M", "--group", "default", "--type", "float31"}, "'float31' given");
    refused(2, {"broadcast", "1M", "--group", "default", "--root", "2"}, "root out of range");
    refused(1, {"allreduce", "1M", "--group", "absent"}, "has no group 'absent'");
  });
}

}  // namespace
}  // namespace hdt::testing
