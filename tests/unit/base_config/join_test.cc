// join_test.cc: lists in texts.
#include "base/join.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace hdt {
namespace {

TEST(Join, PutsTheSeparatorBetweenItems) {
  EXPECT_EQ(join(std::vector<std::string>{}, ", "), "");
  EXPECT_EQ(join(std::vector<std::string>{"a"}, ", "), "a");
  EXPECT_EQ(join(std::vector<std::string>{"a", "b", "c"}, "; "), "a; b; c");
  EXPECT_EQ(join(std::vector<std::string>{"", "", "c"}, ","), ",,c") << "an empty text is an item";
  EXPECT_EQ(join(std::set<int>{7, 3}, ", ", [](int number) { return std::to_string(number); }), "3, 7");
}

TEST(Join, NamesTheFirstNumbersAndCountsTheOthers) {
  EXPECT_EQ(join_first(std::vector<uint32_t>{}, 3), "");
  EXPECT_EQ(join_first(std::vector<uint32_t>{4, 2}, 3), "4, 2");
  EXPECT_EQ(join_first(std::vector<uint32_t>{4, 2, 9}, 3), "4, 2, 9");
  EXPECT_EQ(join_first(std::vector<uint32_t>{4, 2, 9, 1}, 3), "4, 2, 9 and 1 more");
  EXPECT_EQ(join_first(std::set<uint32_t>{5, 6, 7, 8, 9}, 2), "5, 6 and 3 more");
}

}  // namespace
}  // namespace hdt
