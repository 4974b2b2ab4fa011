// groups_test.cc: splits.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "ipc/segment.h"
#include "tests/integration/communicator/rank_threads.h"

namespace hdt::testing {
namespace {

// The old ranks of a group's members, in the order of the new ranks.
std::vector<int32_t> members(hdtComm_t comm, int old_rank) {
  int ranks = 0;
  HDT_EXPECT(hdtCommCount(comm, &ranks));
  std::vector<int32_t> all(static_cast<size_t>(ranks));
  const int32_t mine = old_rank;
  HDT_EXPECT(hdtAllGather(&mine, all.data(), 1, HDT_INT32, comm, nullptr));
  return all;
}

TEST(Split, ByColorInTheOrderOfKeys) {
  Nodes::instance().run({0, 0, 1, 1}, [](Rank& self) {
    hdtComm_t part = nullptr;
    HDT_EXPECT(hdtCommSplit(self.comm, self.rank % 2, -self.rank, &part, nullptr));
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(members(part, self.rank),
              self.rank % 2 == 0 ? (std::vector<int32_t>{2, 0}) : (std::vector<int32_t>{3, 1}));
    HDT_EXPECT(hdtCommDestroy(part));
  });
}

TEST(Split, EqualKeysKeepTheOldOrder) {
  Nodes::instance().run({1, 0, 1, 0}, [](Rank& self) {
    hdtComm_t part = nullptr;
    HDT_EXPECT(hdtCommSplit(self.comm, 7, 0, &part, nullptr));
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(members(part, self.rank), (std::vector<int32_t>{0, 1, 2, 3}));
    HDT_EXPECT(hdtCommDestroy(part));
  });
}

TEST(Split, NoColorGetsNoGroup) {
  Nodes::instance().run({0, 1, 2}, [](Rank& self) {
    hdtComm_t part = nullptr;
    HDT_EXPECT(hdtCommSplit(self.comm, self.rank == 1 ? HDT_SPLIT_NO_COLOR : 0, 0, &part, nullptr));
    ASSERT_EQ(part == nullptr, self.rank == 1);
    if (part != nullptr) {
      EXPECT_EQ(members(part, self.rank), (std::vector<int32_t>{0, 2}));
    }
    HDT_EXPECT(hdtCommDestroy(part));
  });
}

TEST(Split, OfASplitAndTheParentGoesOn) {
  Nodes::instance().run({0, 0, 1, 1}, [](Rank& self) {
    hdtComm_t half = nullptr;
    HDT_EXPECT(hdtCommSplit(self.comm, self.rank / 2, 0, &half, nullptr));
    ASSERT_NE(half, nullptr);
    hdtComm_t alone = nullptr;
    HDT_EXPECT(hdtCommSplit(half, self.rank, 0, &alone, nullptr));
    ASSERT_NE(alone, nullptr);
    EXPECT_EQ(members(alone, self.rank), (std::vector<int32_t>{self.rank}));
    EXPECT_EQ(members(half, self.rank).size(), 2U);
    HDT_EXPECT(hdtCommDestroy(half));
    EXPECT_EQ(members(self.comm, self.rank), (std::vector<int32_t>{0, 1, 2, 3}));
    EXPECT_EQ(members(alone, self.rank), (std::vector<int32_t>{self.rank}));
    HDT_EXPECT(hdtCommDestroy(alone));
  });
}

TEST(Split, NegativeColorsAreRefused) {
  Nodes::instance().run({0}, [](Rank& self) {
    hdtComm_t part = nullptr;
    EXPECT_EQ(hdtCommSplit(self.comm, -7, 0, &part, nullptr), HDT_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(part, nullptr);
  });
}

// The last rank has its part in the exchange of colors, and never joins: it aborts the parent, as one does
// whose own new group is there and has failed already. The others must not wait for it until their deadline.
TEST(Split, EndsWithItsParentThoughARankIsMissing) {
  for (const std::vector<int>& nodes : {std::vector<int>{0, 0, 0}, {0, 1, 2}, {0, 0, 1}}) {
    Nodes::instance().run(nodes, [](Rank& self) {
      if (self.rank == 2) {
        // A rank contributes its color, its key and its daemon's address to a split.
        constexpr size_t kElements = 2 + (ipc::kMaxAddressBytes + 36) / sizeof(int32_t);
        const std::vector<int32_t> mine(kElements);
        std::vector<int32_t> all(3 * kElements);
        HDT_EXPECT(hdtAllGather(mine.data(), all.data(), kElements, HDT_INT32, self.comm, nullptr));
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        HDT_EXPECT(hdtCommAbort(self.comm));
        return;
      }
      hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
      config.timeout_ms = 20'000;
      hdtComm_t part = nullptr;
      EXPECT_EQ(hdtCommSplit(self.comm, 0, 0, &part, &config), HDT_ERR_ABORTED) << hdtGetLastError();
      EXPECT_NE(std::string(hdtGetLastError()).find("rank 2 aborted the group"), std::string::npos)
          << hdtGetLastError();
      EXPECT_EQ(part, nullptr);
    });
  }
}

TEST(Groups, OfEveryClassNameUpToItsLimit) {
  hdtUniqueId_t id;
  (void)Nodes::instance();
  ASSERT_EQ(hdtGetUniqueId(&id), HDT_SUCCESS) << hdtGetLastError();
  hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
  const std::string longest(31, 'c');
  config.group_class = longest.c_str();
  hdtComm_t comm = nullptr;
  HDT_EXPECT(hdtCommInitRank(&comm, 1, id, 0, &config));
  HDT_EXPECT(hdtCommDestroy(comm));
  const std::string longer(32, 'c');
  config.group_class = longer.c_str();
  EXPECT_EQ(hdtCommInitRank(&comm, 1, id, 0, &config), HDT_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(comm, nullptr);
}

bool operator==(const hdtUniqueId_t& a, const hdtUniqueId_t& b) {
  return std::memcmp(a.internal, b.internal, sizeof a.internal) == 0;
}

TEST(Groups, OfDerivedIds) {
  hdtUniqueId_t base;
  (void)Nodes::instance();
  ASSERT_EQ(hdtGetUniqueId(&base), HDT_SUCCESS) << hdtGetLastError();
  // Each rank derives by itself. Rank 2 is in the even groups alone: their numbers tell them apart, though
  // several exist at the same time.
  Nodes::instance().run({0, 0, 1}, [&base](Rank& self) {
    std::vector<hdtComm_t> groups;
    for (uint64_t number = 0; number < 6; ++number) {
      const int ranks = number % 2 == 0 ? 3 : 2;
      if (self.rank >= ranks) continue;
      hdtUniqueId_t id;
      HDT_EXPECT(hdtDeriveUniqueId(&id, &base, number));
      hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
      config.socket = Nodes::instance().socket(self.rank / 2).c_str();
      HDT_EXPECT(hdtCommInitRank(&groups.emplace_back(), ranks, id, self.rank, &config));
      EXPECT_EQ(members(groups.back(), self.rank).size(), static_cast<size_t>(ranks));
    }
    for (hdtComm_t group : groups) HDT_EXPECT(hdtCommDestroy(group));
  });
  hdtUniqueId_t one, two, again = base;
  HDT_EXPECT(hdtDeriveUniqueId(&one, &base, 1));
  HDT_EXPECT(hdtDeriveUniqueId(&two, &base, UINT64_MAX));
  HDT_EXPECT(hdtDeriveUniqueId(&again, &again, 1));
  EXPECT_TRUE(again == one);
  EXPECT_FALSE(one == two);
  EXPECT_FALSE(one == base);
  HDT_EXPECT(hdtDeriveUniqueId(&two, &one, 1));
  EXPECT_FALSE(one == two);
  const hdtUniqueId_t none{};
  EXPECT_EQ(hdtDeriveUniqueId(&one, &none, 1), HDT_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(hdtDeriveUniqueId(nullptr, &base, 1), HDT_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(hdtDeriveUniqueId(&one, nullptr, 1), HDT_ERR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace hdt::testing
