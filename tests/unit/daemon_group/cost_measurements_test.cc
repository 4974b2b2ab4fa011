// cost_measurements_test.cc: what nodes have measured, as the cost model's measurements.
#include "daemon/group/cost_measurements.h"

#include <gtest/gtest.h>

namespace hdt::daemon {
namespace {

using ipc::LinkRates;
using ipc::NodeRates;

std::vector<NodeRates> example_table() {
  const LinkRates fast{5'000, 10'000'000'000, 9'000'000'000};
  const LinkRates slow{20'000, 1'000'000'000, 800'000'000};
  return {{{8'000'000'000, 6'000'000'000}, {{}, fast, slow}},
          {{4'000'000'000, 7'000'000'000}, {fast, {}, slow}},
          {{9'000'000'000, 9'000'000'000}, {slow, fast, {}}}};
}

// The steps of both ends, 2 us each, are in half a round trip, and are no latency.
TEST(Figures, LinksByDirectionAndMemoryByNode) {
  const auto measurements = cost_measurements(example_table());
  ASSERT_TRUE(measurements.has_value());
  ASSERT_EQ(measurements->memory.size(), 3U);
  EXPECT_DOUBLE_EQ(measurements->memory[0].copy_bytes_s, 8e9);
  EXPECT_DOUBLE_EQ(measurements->memory[0].reduce_bytes_s, 6e9);
  EXPECT_DOUBLE_EQ(measurements->memory[1].copy_bytes_s, 4e9);
  EXPECT_DOUBLE_EQ(measurements->memory[1].reduce_bytes_s, 7e9);
  EXPECT_DOUBLE_EQ(measurements->link_of(1, 2).latency_s, 16e-6);
  EXPECT_DOUBLE_EQ(measurements->link_of(2, 1).latency_s, 1e-6);
  EXPECT_DOUBLE_EQ(measurements->link_of(2, 1).bandwidth_bytes_s, 1e10);
  EXPECT_DOUBLE_EQ(measurements->link_of(2, 1).duplex_bytes_s, 9e9);
  auto near = example_table();
  near[1].links[2].latency_ns = 3'000;
  EXPECT_EQ(cost_measurements(near)->link_of(1, 2).latency_s, 0);
}

TEST(Figures, OfAPartOfALinkAreThatPartOfItsRates) {
  std::vector<ipc::LinkPart> parts(9, ipc::kWholeLink);
  parts[1 * 3 + 2] = 4;
  const auto table = with_parts(example_table(), parts);
  auto expected = example_table();
  expected[1].links[2].bytes_s /= 4;
  expected[1].links[2].duplex_bytes_s /= 4;
  EXPECT_EQ(table, expected);
  // Nothing that was measured becomes 0, which would mean that it was not; and the other way round.
  auto odd = example_table();
  odd[1].links[2].bytes_s = 3;
  odd[1].links[2].duplex_bytes_s = 0;
  const auto part = with_parts(odd, parts)[1].links[2];
  EXPECT_EQ(part.bytes_s, 1U);
  EXPECT_EQ(part.duplex_bytes_s, 0U);
}

// A link that has got more NICs; and one whose rates come from a node that says anything.
TEST(Figures, OfALinkWithMoreNicsAreMore) {
  std::vector<ipc::LinkPart> parts(9, ipc::kWholeLink);
  parts[1 * 3 + 2] = 40;
  auto table = example_table();
  table[1].links[2] = {20'000, 1'600, UINT64_MAX};
  const auto part = with_parts(table, parts)[1].links[2];
  EXPECT_EQ(part.bytes_s, 4'000U);
  EXPECT_GT(part.duplex_bytes_s, UINT64_MAX / 8);
}

TEST(Figures, ThereAreNoneWhereSomethingIsNotMeasured) {
  auto table = example_table();
  table[2].links[0].bytes_s = 0;
  EXPECT_FALSE(cost_measurements(table).has_value());
  table = example_table();
  table[0].links[1].duplex_bytes_s = 0;
  EXPECT_FALSE(cost_measurements(table).has_value());
  table = example_table();
  table[1].memory.reduce_bytes_s = 0;
  EXPECT_FALSE(cost_measurements(table).has_value());
  table = example_table();
  table[0].links.pop_back();
  EXPECT_FALSE(cost_measurements(table).has_value());
}

}  // namespace
}  // namespace hdt::daemon
