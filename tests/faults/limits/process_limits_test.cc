// process_limits_test.cc: a process at a limit of its own: the call that needs more fails on all ranks with
// the limit's name, everything else goes on, and it works again when there is room.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/faults/limits/limited_rank.h"

namespace hdt::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ProcessLimits : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  LimitedWorld world_;
  LimitedWorld::Ranks ranks_ = world_.joined(GetParam());

  // Every rank is refused, soon, and told which limit it is and which rank's.
  void expect_refused(const std::string& call, const std::string& words) {
    for (auto& rank : ranks_) rank->start(call);
    for (auto& rank : ranks_) {
      const Told told = rank->finish(kSoonMs);
      EXPECT_EQ(told.result, HDT_ERR_SYSTEM) << told.text;
      EXPECT_THAT(told.text, HasSubstr(words));
      EXPECT_THAT(told.text, HasSubstr("rank 1 could not take its seat in the group"));
    }
  }
  void expect_going_on(size_t groups) {
    for (int node : {0, 1}) {
      if (std::find(GetParam().begin(), GetParam().end(), node) != GetParam().end())
        world_.expect_groups(node, groups);
    }
    expect_all(ranks_, "sum");
    expect_all(ranks_, "sums");
  }
};

TEST_P(ProcessLimits, OneMoreGroupThanTheDescriptorsAllow) {
  expect_all(ranks_, "split");
  expect_all(ranks_, "split");
  ASSERT_EQ(ranks_[1]->call("fill 0").result, HDT_SUCCESS);
  for (int i = 0; i < 3; ++i)
    expect_refused("split", "Too many open files: RLIMIT_NOFILE of process limit_program (pid ");
  expect_going_on(3);
  ASSERT_EQ(ranks_[1]->call("lift").result, HDT_SUCCESS);
  expect_all(ranks_, "split");
  expect_going_on(4);
}

TEST_P(ProcessLimits, OneMoreGroupThanTheAddressSpaceAllows) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP()
      << "the thread sanitizer maps memory of its own all the time, and ends the process where it cannot";
#endif
  expect_all(ranks_, "split");
  ASSERT_EQ(ranks_[1]->call("limit as 300000").result, HDT_SUCCESS);
  expect_refused("split", "RLIMIT_AS (ulimit -v) of process limit_program (pid ");
  expect_going_on(2);
  ASSERT_EQ(ranks_[1]->call("lift").result, HDT_SUCCESS);
  expect_all(ranks_, "split");
  expect_going_on(3);
}

std::string name_of(const ::testing::TestParamInfo<std::vector<int>>& info) {
  std::string name = "nodes";
  for (int node : info.param) name += "_" + std::to_string(node);
  return name;
}
INSTANTIATE_TEST_SUITE_P(Placements, ProcessLimits,
                         ::testing::Values(std::vector{0, 0}, std::vector{0, 1}, std::vector{0, 0, 1}),
                         name_of);

TEST(MemoryLimits, MemoryThatCannotBeAllocated) {
  LimitedWorld world;
  auto ranks = world.joined({0});
  LimitedRank& rank = *ranks[0];
  const auto refused = [&](const std::string& limit, const std::string& bytes, const std::string& words) {
    EXPECT_EQ(rank.call(limit).result, HDT_SUCCESS);
    const Told told = rank.call("alloc " + bytes);
    EXPECT_EQ(told.result, HDT_ERR_SYSTEM);
    EXPECT_THAT(told.text, HasSubstr(words));
    EXPECT_EQ(rank.call("lift").result, HDT_SUCCESS);
    EXPECT_EQ(rank.call("alloc 4096").result, HDT_SUCCESS);
    EXPECT_EQ(rank.call("sum").text, "1");
  };
  refused("fill 0", "4096", "RLIMIT_NOFILE of process limit_program (pid ");
  refused("limit as 1000000", "100000000", "RLIMIT_AS (ulimit -v) of process limit_program (pid ");
  // The kernel would end the process with a signal.
  refused("limit fsize 100000", "200000", "RLIMIT_FSIZE (ulimit -f) of process limit_program (pid ");
}

TEST(MemoryLimits, MemoryOfAPeerThatCannotBeOpened) {
  LimitedWorld world;
  auto ranks = world.joined({0, 0});
  expect_all(ranks, "split");
  expect_all(ranks, "alloc 1048576");
  ASSERT_EQ(ranks[1]->call("fill 0").result, HDT_SUCCESS);
  for (auto& rank : ranks) rank->start("big");
  for (auto& rank : ranks) {
    const Told told = rank->finish(kSoonMs);
    EXPECT_EQ(told.result, HDT_ERR_SYSTEM) << told.text;
    EXPECT_THAT(told.text, HasSubstr("RLIMIT_NOFILE of process limit_program (pid " +
                                     std::to_string(ranks[1]->process().pid())));
  }
  expect_all(ranks, "sums");
}

// However few there are, it is a refusal in words or a group, and nothing of it is left behind.
TEST(FirstGroup, WithFewDescriptors) {
  LimitedWorld world;
  const pid_t daemon = world.node(0).process().pid();
  auto rank = world.alone(0);
  EXPECT_EQ(rank->call("init").result, HDT_SUCCESS);
  EXPECT_EQ(rank->call("destroy").result, HDT_SUCCESS);
  size_t refused = 0;
  const size_t threads = std::stoul(rank->call("threads").text);
  for (int left = 0; left < 12; ++left) {
    ASSERT_EQ(rank->call("fill " + std::to_string(left)).result, HDT_SUCCESS);
    const Told told = rank->call("init");
    if (told.result == HDT_SUCCESS) {
      EXPECT_EQ(rank->call("sum").text, "1");
      EXPECT_EQ(rank->call("destroy").result, HDT_SUCCESS);
    } else {
      ++refused;
      EXPECT_EQ(told.result, HDT_ERR_SYSTEM) << left << ": " << told.text;
      EXPECT_THAT(told.text, HasSubstr("RLIMIT_NOFILE of process limit_program (pid ")) << left;
    }
    ASSERT_EQ(rank->call("lift").result, HDT_SUCCESS);
  }
  EXPECT_GE(refused, 2U);
  EXPECT_EQ(rank->call("init").result, HDT_SUCCESS);
  EXPECT_EQ(rank->call("sum").text, "1");
  EXPECT_EQ(rank->call("destroy").result, HDT_SUCCESS);
  EXPECT_EQ(std::stoul(rank->call("threads").text), threads);
  world.expect_groups(0, 0);
  EXPECT_EQ(world.status(0)["sessions"].size(), 1U);  // hdtctl
  EXPECT_LT(open_descriptors(daemon), 64U);
}

TEST(FirstGroup, WithFewDescriptorsForAnEmbeddedDaemon) {
  TemporaryFolder folder;
  ::setenv("XDG_RUNTIME_DIR", folder.path().c_str(), 1);
  LimitedRank rank(folder, {{"HDT_NODE_NAME", "limited"}, {"HDT_NICS_ADDRESSES", "127.0.1.1"}});
  for (int left = 0; left < 24; ++left) {
    ASSERT_EQ(rank.call("fill " + std::to_string(left)).result, HDT_SUCCESS);
    const Told told = rank.call("init");
    if (told.result == HDT_SUCCESS) break;
    EXPECT_EQ(told.result, HDT_ERR_SYSTEM) << left << ": " << told.text;
    EXPECT_THAT(told.text, HasSubstr("RLIMIT_NOFILE of process limit_program (pid ")) << left;
    ASSERT_EQ(rank.call("lift").result, HDT_SUCCESS);
  }
  ASSERT_EQ(rank.call("lift").result, HDT_SUCCESS);
  const Told told = rank.call("init");
  EXPECT_EQ(told.result, HDT_SUCCESS) << told.text;
  EXPECT_EQ(rank.call("sum").text, "1");
  EXPECT_EQ(rank.call("destroy").result, HDT_SUCCESS);
}

}  // namespace
}  // namespace hdt::testing
