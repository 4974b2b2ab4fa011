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

}  // namespace
}  // namespace hdt
