// census_test.cc: the ranks of a run, as threads with one folder, find out who of them is left: from what
// each knows, from silence, one loss after the other, and where some have gone on and others could not.
#include "training/checkpoint/census.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <map>
#include <random>
#include <vector>

#include "tests/training/checkpoint/examples.h"
#include "tests/training/data/temporary_folder.h"

namespace hdt::training {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Far above what a thread on a busy machine needs between two beats.
constexpr auto kPatience = milliseconds(4000);
// Where silence is waited for.
constexpr auto kLongestWay = milliseconds(60'000);

using Known = std::map<int, std::set<int>>;  // by rank

class CensusTest : public ::testing::Test {
 protected:
  void start(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      auto census = Census::start(folder_.path(), rank, ranks);
      ASSERT_TRUE(census.is_ok()) << census.status().to_string();
      ranks_.push_back(census.take());
    }
  }
  // What agree() returns on each of these ranks, all of which call it at once.
  std::map<int, Result<std::set<int>>> agree(const Known& known) {
    std::map<int, std::future<Result<std::set<int>>>> calls;
    for (const auto& entry : known) {
      Census* const census = ranks_[static_cast<size_t>(entry.first)].get();
      const std::set<int> mine = entry.second;
      calls.emplace(entry.first, std::async(std::launch::async, [census, mine] {
                      return census->agree(mine, kPatience, kLongestWay);
                    }));
    }
    std::map<int, Result<std::set<int>>> found;
    for (auto& [rank, call] : calls) found.emplace(rank, call.get());
    return found;
  }
  void expect_agreed(const Known& known, const std::set<int>& lost) {
    for (const auto& [rank, found] : agree(known)) {
      ASSERT_TRUE(found.is_ok()) << rank << ": " << found.status().to_string();
      EXPECT_EQ(found.value(), lost) << rank;
    }
  }
  void expect_left_behind(int rank, const std::set<int>& known) {
    const auto found = ranks_[static_cast<size_t>(rank)]->agree(known, kPatience, kLongestWay);
    ASSERT_FALSE(found.is_ok()) << rank;
    EXPECT_EQ(found.status().code(), Code::kAborted) << found.status().message();
    EXPECT_THAT(found.status().message(), HasSubstr("take this one for lost"));
  }
  void settle(const std::vector<int>& ranks) {
    for (const int rank : ranks) EXPECT_TRUE(ranks_[static_cast<size_t>(rank)]->settle().is_ok());
    for (const int rank : ranks) ranks_[static_cast<size_t>(rank)]->rest();
  }
  // Its process has ended; its file stays.
  void lose(int rank) { ranks_[static_cast<size_t>(rank)].reset(); }

  TemporaryFolder folder_;
  std::vector<std::unique_ptr<Census>> ranks_;
};

TEST_F(CensusTest, WhatOneKnowsAllLearn) {
  std::mt19937_64 random(seed_of_test());
  const int ranks = 3 + static_cast<int>(random() % 6);
  start(ranks);
  std::set<int> lost;
  while (lost.empty() || random() % 2 == 0) {
    if (static_cast<int>(lost.size()) + 2 < ranks) lost.insert(static_cast<int>(random() % ranks));
    if (static_cast<int>(lost.size()) + 2 >= ranks) break;
  }
  for (const int rank : lost) lose(rank);
  std::vector<int> left;
  Known known;
  for (int rank = 0; rank < ranks; ++rank) {
    if (lost.contains(rank)) continue;
    left.push_back(rank);
    known[rank];
  }
  for (const int rank : lost) known[left[random() % left.size()]].insert(rank);
  expect_agreed(known, lost);
}

TEST_F(CensusTest, WhoIsSilentIsLost) {
  start(4);
  lose(2);
  expect_agreed({{0, {}}, {1, {}}, {3, {}}}, {2});
}

TEST_F(CensusTest, WhereNobodyIsLostAllLearnThat) {
  start(3);
  expect_agreed({{0, {}}, {1, {}}, {2, {}}}, {});
}

TEST_F(CensusTest, OneLossAfterTheOther) {
  start(5);
  lose(1);
  expect_agreed({{0, {1}}, {2, {}}, {3, {1}}, {4, {}}}, {1});
  settle({0, 2, 3, 4});
  lose(0);
  expect_agreed({{2, {0}}, {3, {}}, {4, {0}}}, {0, 1});
  settle({2, 3, 4});
  lose(4);
  expect_agreed({{2, {4}}, {3, {4}}}, {0, 1, 4});
}

// Rank 3 was lost in the moment in which the group was made: one rank has it, and the other one does not.
TEST_F(CensusTest, SomeHaveGoneOnAndOthersCouldNot) {
  start(4);
  lose(1);
  expect_agreed({{0, {1}}, {2, {1}}, {3, {1}}}, {1});
  settle({0});
  lose(3);
  expect_agreed({{0, {3}}, {2, {}}}, {1, 3});
}

// It hung, and comes back when the others train.
TEST_F(CensusTest, WhoWasLeftBehindEnds) {
  start(4);
  expect_agreed({{0, {3}}, {1, {3}}, {2, {}}}, {3});
  settle({0, 1, 2});
  expect_left_behind(3, {});
}

// It takes for lost those that have gone on without it; it must not go on alone.
TEST_F(CensusTest, WhoTakesAllOthersForLostEnds) {
  start(2);
  expect_agreed({{0, {1}}}, {1});
  settle({0});
  expect_left_behind(1, {0});
}

// What it has said meanwhile does not trouble the others at the next loss.
TEST_F(CensusTest, TheWordOfOneThatWasLeftBehindDoesNotCount) {
  start(4);
  {
    std::ofstream file(folder_.path() + "/rank-00003");
    file << to_text({1, 100, {0, 1}, false});
  }
  lose(3);
  expect_agreed({{0, {3}}, {1, {3}}, {2, {3}}}, {3});
}

// A link is cut: both live. The one that is first goes on, and the lower one where they come at once.
TEST_F(CensusTest, OfTwoThatTakeEachOtherForLostOneGoesOn) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    const TemporaryFolder folder;
    const auto go_on = [&folder](int rank) {
      auto census = Census::start(folder.path(), rank, 2);
      if (!census.is_ok()) return false;
      const auto lost = census.value()->agree({1 - rank}, kPatience, kLongestWay);
      return lost.is_ok() && lost.value() == std::set<int>{1 - rank} && census.value()->settle().is_ok();
    };
    std::future<bool> second = std::async(std::launch::async, go_on, 1);
    const bool first_goes_on = go_on(0);
    EXPECT_NE(second.get(), first_goes_on);
  }
}

// It sees that the other one lives, which has not made its group yet.
TEST_F(CensusTest, TheHigherOneOfTwoEnds) {
  start(2);
  expect_agreed({{0, {1}}}, {1});
  expect_left_behind(1, {0});
}

// Each has made its group, and not seen the other one.
TEST_F(CensusTest, OfTwoGroupsNotBothGoOn) {
  start(2);
  expect_agreed({{0, {1}}}, {1});
  {
    std::ofstream file(folder_.path() + "/rank-00001");
    file << to_text({1, 100, {0}, true});
  }
  const Status settled = ranks_[0]->settle();
  EXPECT_EQ(settled.code(), Code::kAborted) << settled.message();
}

TEST_F(CensusTest, AfterTheEndOfTheRunNobodyGoesOn) {
  start(2);
  std::filesystem::remove_all(folder_.path());
  expect_left_behind(1, {0});
}

TEST_F(CensusTest, AFolderThatIsNotThereIsAnError) {
  const auto census = Census::start(folder_.path() + "/none", 0, 2);
  ASSERT_FALSE(census.is_ok());
  EXPECT_THAT(census.status().message(), HasSubstr(folder_.path() + "/none/rank-00000"));
}

}  // namespace
}  // namespace hdt::training
