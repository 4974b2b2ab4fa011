// status_test.cc: which numbers are codes.
#include "base/status.h"

#include <gtest/gtest.h>

#include <climits>
#include <string>

namespace hdt {
namespace {

TEST(Code, IsCheckedByItsRange) {
  for (int number = 0; number < kCodeCount; ++number) {
    EXPECT_TRUE(is_code(static_cast<Code>(number))) << number;
    EXPECT_NE(code_text(static_cast<Code>(number)), std::string("unknown code")) << number;
  }
  for (const int number : {INT_MIN, -1, kCodeCount, INT_MAX}) {
    EXPECT_FALSE(is_code(static_cast<Code>(number))) << number;
    EXPECT_EQ(code_text(static_cast<Code>(number)), std::string("unknown code")) << number;
  }
}

}  // namespace
}  // namespace hdt
