#include "training/data/data_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hdt::training {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

auto borders(const char* text, uint64_t elements) {
  return split_borders(parse_data_split(text).value(), elements);
}

TEST(DataSplit, PlacesTheBordersOfMegatron) {
  EXPECT_THAT(borders("969,30,1", 1000), ElementsAre(0, 969, 999, 1000));
  // round(66 * 0.969) = 64, round(66 * 0.999) = 66.
  EXPECT_THAT(borders("969,30,1", 66), ElementsAre(0, 64, 66, 66));
  // round(2.5) is 2 and round(7.5) is 8, half to even.
  EXPECT_THAT(borders("1,2,1", 10), ElementsAre(0, 2, 8, 10));
  EXPECT_THAT(borders("1", 7), ElementsAre(0, 7, 7, 7));
  EXPECT_THAT(borders("0.5,0.5", 7), ElementsAre(0, 4, 7, 7));
  EXPECT_THAT(borders("98,0,2", 100), ElementsAre(0, 98, 98, 100));
  EXPECT_THAT(borders("969,30,1", 0), ElementsAre(0, 0, 0, 0));
}

// Shares such as 0.7 + 0.2 + 0.1 do not sum to 1 in binary; nothing may be lost or go to a part without
// weight.
TEST(DataSplit, LeavesNothingOut) {
  for (const uint64_t elements : {uint64_t{1}, uint64_t{1} << 20, (uint64_t{1} << 45) + 12345}) {
    for (const char* text : {"7,2,1", "1,1,1", "0.1,0.2,0.7", "3,0.3,0.03"}) {
      const auto found = borders(text, elements);
      EXPECT_EQ(found[3], elements) << text;
      EXPECT_LE(found[1], found[2]);
      EXPECT_LE(found[2], found[3]);
    }
    EXPECT_EQ(borders("0.7,0.3", elements)[2], elements);
  }
}

TEST(DataSplit, RefusesWhatIsNoSplit) {
  for (const char* text : {"", ",", "a", "1,", "1,,1", "1,-1", "nan", "inf,1", "1 ,1", "2e9", "0,1", "0"})
    EXPECT_FALSE(parse_data_split(text).is_ok()) << text;
  EXPECT_THAT(parse_data_split("1,1,1,1").status().message(), HasSubstr("at most 3 weights"));
  EXPECT_THAT(parse_data_split("0,1,1").status().message(), HasSubstr("that of training, above 0"));
  EXPECT_THAT(parse_data_split("9,x").status().message(), HasSubstr("'x' in '9,x' given"));
}

}  // namespace
}  // namespace hdt::training
