// figures_test.cc: the table of what nodes have measured: on the way, and as the cost model's figures.
#include "session/figures.h"

#include <gtest/gtest.h>

namespace hdt::session {
namespace {

std::vector<NodeRates> example_table() {
  const LinkRates fast{5'000, 10'000'000'000, 9'000'000'000};
  const LinkRates slow{20'000, 1'000'000'000, 800'000'000};
  return {{{8'000'000'000, 6'000'000'000}, {{}, fast, slow}},
          {{4'000'000'000, 7'000'000'000}, {fast, {}, slow}},
          {{9'000'000'000, 9'000'000'000}, {slow, fast, {}}}};
}

// Of half a round trip the steps of both ends, 2 us each, are no latency.
TEST(Figures, LinksByDirectionAndTheSlowestNodesMemory) {
  const auto figures = cost_figures(example_table());
  ASSERT_TRUE(figures.has_value());
  EXPECT_DOUBLE_EQ(figures->copy_bytes_s, 4e9);
  EXPECT_DOUBLE_EQ(figures->reduce_bytes_s, 6e9);
  EXPECT_DOUBLE_EQ(figures->link_of(1, 2).latency_s, 16e-6);
  EXPECT_DOUBLE_EQ(figures->link_of(2, 1).latency_s, 1e-6);
  EXPECT_DOUBLE_EQ(figures->link_of(2, 1).bandwidth_bytes_s, 1e10);
  EXPECT_DOUBLE_EQ(figures->link_of(2, 1).duplex_bytes_s, 9e9);
  auto near = example_table();
  near[1].links[2].latency_ns = 3'000;
  EXPECT_EQ(cost_figures(near)->link_of(1, 2).latency_s, 0);
}

TEST(Figures, ThereAreNoneWhereSomethingIsNotMeasured) {
  auto table = example_table();
  table[2].links[0].bytes_s = 0;
  EXPECT_FALSE(cost_figures(table).has_value());
  table = example_table();
  table[0].links[1].duplex_bytes_s = 0;
  EXPECT_FALSE(cost_figures(table).has_value());
  table = example_table();
  table[1].memory.reduce_bytes_s = 0;
  EXPECT_FALSE(cost_figures(table).has_value());
  table = example_table();
  table[0].links.pop_back();
  EXPECT_FALSE(cost_figures(table).has_value());
}

TEST(Figures, SurviveTheWayAndHaveALimit) {
  Writer writer;
  put(writer, example_table()[2]);
  Reader reader(writer.bytes());
  EXPECT_EQ(get_node_rates(reader), example_table()[2]);
  EXPECT_TRUE(reader.complete());
  Writer large;
  put(large, NodeRates{{1, 1}, std::vector<LinkRates>(kMostMeasuredNodes + 1)});
  Reader refused(large.bytes());
  (void)get_node_rates(refused);
  EXPECT_FALSE(refused.complete());
}

}  // namespace
}  // namespace hdt::session
