// job.h: jobs on nodes without hdtcommd: processes of rank_program that find or host embedded daemons in a
// folder of the test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/faults/communicator/rank_process.h"

namespace hdt::testing {

using Rank = std::unique_ptr<RankProcess>;
using Ranks = std::vector<Rank>;

inline constexpr int64_t kEndMs = 10'000;

class EmbeddedNodes : public ::testing::Test {
 protected:
  // A process on node "e<node>". Nobody hosts or joins yet.
  Rank process_on(int node) {
    return std::make_unique<RankProcess>(
        folder_,
        std::map<std::string, std::string>{{"XDG_RUNTIME_DIR", folder_.path()},
                                           {"HDT_NODE_NAME", "e" + std::to_string(node)},
                                           {"HDT_LOG_LEVEL", "info"},
                                           {"HDT_NICS_ADDRESSES", "127.0.1." + std::to_string(node + 1)}});
  }
  // A group of new processes, ranks[i] on node placement[i].
  Ranks job(const std::vector<int>& placement) {
    Ranks ranks;
    for (const int node : placement) ranks.push_back(process_on(node));
    World::join(ranks, kAnswerMs, "");
    return ranks;
  }
  // A process alone in its group, the first on that node: it hosts the daemon.
  Rank host_on(int node) { return std::move(job({node}).front()); }

  static void expect_all(Ranks& ranks, const std::string& call) {
    for (auto& rank : ranks) rank->start(call);
    for (auto& rank : ranks) {
      const Answer answer = rank->finish();
      EXPECT_EQ(answer.result, HDT_SUCCESS) << call << ": " << answer.text;
    }
  }
  // It leaves main(); so long for that is far from the minute for which hosts once stayed.
  static void expect_exit(RankProcess& rank) {
    rank.start("exit");
    EXPECT_EQ(rank.process().wait(Deadline::after_ms(kEndMs)), 0);
  }
  static void expect_exit(Ranks& ranks) {
    for (auto& rank : ranks) rank->start("exit");
    for (auto& rank : ranks) EXPECT_EQ(rank->process().wait(Deadline::after_ms(kEndMs)), 0);
  }
  static void end_group(Ranks& ranks) {
    expect_all(ranks, "destroy");
    expect_exit(ranks);
  }
  static void kill(RankProcess& rank) {
    rank.process().signal(SIGKILL);
    ASSERT_TRUE(rank.process().wait(Deadline::after_ms(kAnswerMs)).has_value());
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.file("hdt"), none))
      names.push_back(entry.path().filename());
    return names;
  }
  void expect_nothing_left() const {
    EXPECT_THAT(files(), ::testing::IsEmpty());
    EXPECT_FALSE(std::filesystem::exists(folder_.file("hdt")));
  }

  TemporaryFolder folder_;
};

}  // namespace hdt::testing
