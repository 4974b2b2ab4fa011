// counts_test.cc: the counts that are suggested for given rates, and the parts in which calls by counts are
// made.
#include "libclient/common/counts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <numeric>
#include <random>

namespace hdt::client::testing {
namespace {

using Counts = std::vector<size_t>;

ipc::Order order_of(std::vector<uint32_t> node_of_rank) {
  const uint32_t nodes = 1 + *std::ranges::max_element(node_of_rank);
  return ipc::Order(std::move(node_of_rank), nodes);
}

const std::vector<uint64_t> kOneAtHalf = {1'000'000, 1'000'000, 1'000'000, 500'000};

TEST(SuggestedCounts, FollowTheRates) {
  const ipc::Order order = order_of({0, 1, 2, 3});
  const Counts counts = suggested_counts(order, kOneAtHalf, 6'000'000, 4);
  EXPECT_EQ(std::reduce(counts.begin(), counts.end()), 6'000'000U);
  EXPECT_NEAR(static_cast<double>(counts[3]), 3'000'000, 16);
  for (const size_t rank : {0, 1, 2}) {
    EXPECT_NEAR(static_cast<double>(counts[rank]), 1'000'000, 100);
    EXPECT_EQ(counts[rank] * 4 % 64, 0U);
  }
}

TEST(SuggestedCounts, AreSharedByTheRanksOfANode) {
  const ipc::Order order = order_of({3, 0, 1, 0, 2, 3, 3});
  const Counts counts = suggested_counts(order, kOneAtHalf, 12'000'000, 2);
  EXPECT_EQ(std::reduce(counts.begin(), counts.end()), 12'000'000U);
  for (const size_t rank : {0, 5, 6}) EXPECT_NEAR(static_cast<double>(counts[rank]), 2'000'000, 64);
  for (const size_t rank : {1, 3}) EXPECT_NEAR(static_cast<double>(counts[rank]), 1'000'000, 200);
  for (const size_t rank : {2, 4}) EXPECT_NEAR(static_cast<double>(counts[rank]), 2'000'000, 200);
}

// Nodes with as good links are best off with as much, however many ranks share it.
TEST(SuggestedCounts, AreByNodeWhereNodesHaveDifferentNumbersOfRanks) {
  const std::vector<uint64_t> alike(2, 1'000'000);
  EXPECT_EQ(suggested_counts(order_of({0, 0, 0, 1}), alike, 6'144, 1), (Counts{1'024, 1'024, 1'024, 3'072}));
  EXPECT_EQ(suggested_counts(order_of({0, 1, 0, 1}), alike, 6'144, 1), Counts(4, 1'536));
}

TEST(SuggestedCounts, AreEqualWhereNothingIsKnownOrNothingIsGained) {
  const Counts equal = {26, 25, 25, 25};
  EXPECT_EQ(suggested_counts(order_of({0, 1, 2, 3}), {}, 101, 4), equal);
  EXPECT_EQ(suggested_counts(order_of({0, 0, 0, 0}), std::vector<uint64_t>{0}, 101, 4), equal);
  EXPECT_EQ(suggested_counts(order_of({0, 1, 2, 3}), std::vector<uint64_t>{9, 9, 0, 9}, 101, 4), equal);
  EXPECT_EQ(suggested_counts(order_of({0, 1, 2, 3}), std::vector<uint64_t>{90, 100, 95, 98}, 101, 4), equal);
  EXPECT_EQ(suggested_counts(order_of({0, 1, 2, 3}), std::vector<uint64_t>{70, 100, 95, 98}, 0, 4),
            Counts(4));
}

TEST(SuggestedCounts, AddUpForAnyRatesAndCounts) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2'000; ++round) {
    std::vector<uint32_t> node_of_rank(1 + random() % 12);
    for (uint32_t& node : node_of_rank) node = static_cast<uint32_t>(random() % 5);
    node_of_rank.insert(node_of_rank.end(), {0, 1, 2, 3, 4});  // each node has a rank
    std::vector<uint64_t> rates(5);
    for (uint64_t& rate : rates) rate = random() >> random() % 64;  // also more than any link has
    const uint64_t count = (random() >> 8) >> random() % 57;
    const Counts counts = suggested_counts(order_of(node_of_rank), rates, count, 1 << random() % 4);
    ASSERT_EQ(std::reduce(counts.begin(), counts.end()), count) << "round " << round << ", seed " << seed;
    ASSERT_EQ(counts.size(), node_of_rank.size());
  }
}

Counts counts_in(const std::vector<CountPart>& parts, size_t ranks) {
  Counts counts(ranks);
  for (const CountPart& part : parts) counts[part.root] += part.count;
  return counts;
}

TEST(Parts, CoverEveryBlockOnceAndInOrder) {
  const Counts counts = {3'000'001, 0, 5, 700'000};
  const std::vector<CountPart> parts = parts_of(counts, 8, false);
  EXPECT_EQ(counts_in(parts, 4), counts);
  Counts next(4);
  std::vector<uint8_t> number(4);
  for (const CountPart& part : parts) {
    EXPECT_EQ(part.first, next[part.root]);
    EXPECT_GT(part.count, 0U);
    EXPECT_LE(part.count * 8, size_t{512} << 10);
    EXPECT_EQ(part.first % 64, 0U);
    next[part.root] += part.count;
    EXPECT_EQ(ipc::part_number(part.part), ++number[part.root]);
    EXPECT_EQ((part.part & ipc::kLastPart) != 0, &part == &parts.back());
  }
}

TEST(Parts, TakeTurnsAsOftenAsTheirBlocksAreLong) {
  const Counts counts = {3'000'000, 1'000'000, 2'000'000};
  const std::vector<CountPart> parts = parts_of(counts, 4, false);
  Counts so_far(3);
  size_t all = 0;
  for (const CountPart& part : parts) {
    so_far[part.root] += part.count;
    all += part.count;
    // Within a part of each.
    for (size_t rank = 0; rank < 3; ++rank) {
      EXPECT_NEAR(static_cast<double>(so_far[rank]), static_cast<double>(all) * counts[rank] / 6'000'000,
                  2.1 * 131'072);
    }
  }
}

TEST(Parts, AreWholeBlocksInSmallCallsAndWhereAskedFor) {
  for (const bool whole : {false, true}) {
    const Counts counts = {whole ? 10'000'000U : 100U, 0, 7};
    const std::vector<CountPart> parts = parts_of(counts, 8, whole);
    ASSERT_EQ(parts.size(), 3U);
    for (uint32_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(parts[rank].root, rank);
      EXPECT_EQ(parts[rank].first, 0U);
      EXPECT_EQ(parts[rank].count, counts[rank]);
      EXPECT_EQ(parts[rank].part, 0U);
    }
  }
}

TEST(Parts, OfALongBlockAreLongerAndNotMore) {
  const std::vector<CountPart> parts = parts_of(Counts{uint64_t{1} << 50, 1}, 8, false);
  EXPECT_LE(parts.size(), 4'097U);
  EXPECT_EQ(counts_in(parts, 2), (Counts{uint64_t{1} << 50, 1}));
}

// Ranks with different counts make different calls, and the first one that differs is there before any of
// them has made its last one: no rank believes that the operation is complete.
TEST(Parts, OfDifferentCountsDifferInACallThatBothMake) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  const auto some = [&] { return Counts{random() % 4 * 131'072, random() % 4 * 131'072, 131'072}; };
  for (int round = 0; round < 500; ++round) {
    const Counts a = some(), b = some();
    if (a == b) continue;
    const std::vector<CountPart> mine = parts_of(a, 4, false), theirs = parts_of(b, 4, false);
    bool differ = false;
    for (size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i) {
      differ |= mine[i].root != theirs[i].root || mine[i].count != theirs[i].count ||
                mine[i].part != theirs[i].part;
    }
    EXPECT_TRUE(differ) << "round " << round << ", seed " << seed;
  }
}

}  // namespace
}  // namespace hdt::client::testing
