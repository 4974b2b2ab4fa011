// sizes_test.cc: sizes as people write them, and sweeps over them.
#include "bench/commbench/sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hdt::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParseSize, ReadsNumbersAndSuffixes) {
  EXPECT_EQ(parse_size("8").value(), 8u);
  EXPECT_EQ(parse_size("0").value(), 0u);
  EXPECT_EQ(parse_size("3K").value(), 3072u);
  EXPECT_EQ(parse_size("64m").value(), size_t{64} << 20);
  EXPECT_EQ(parse_size("1024G").value(), kMaxBytes);
}

TEST(ParseSize, RefusesEverythingElseAndSaysWhatIsExpected) {
  for (const char* text :
       {"", "K", "12Q", "12KB", "-1", " 8", "8 ", "1.5M", "0x10", "1025G", "99999999999999999999"}) {
    const Result<size_t> size = parse_size(text);
    ASSERT_FALSE(size.is_ok()) << text;
    EXPECT_THAT(size.status().message(), HasSubstr(std::string("'") + text + "'"));
    EXPECT_THAT(size.status().message(), HasSubstr("expected"));
  }
}

TEST(SizeText, IsReadBack) {
  for (size_t bytes :
       {size_t{0}, size_t{8}, size_t{1000}, size_t{1024}, size_t{1536}, size_t{64} << 20, kMaxBytes}) {
    EXPECT_EQ(parse_size(size_text(bytes)).value(), bytes);
  }
  EXPECT_EQ(size_text(size_t{64} << 20), "64M");
  EXPECT_EQ(size_text(1536), "1536");
}

TEST(SweepSizes, MultipliesOrSteps) {
  EXPECT_THAT(sweep_sizes(8, 64, 0, 2).value(), ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(sweep_sizes(8, 100, 0, 3).value(), ElementsAre(8, 24, 72));
  EXPECT_THAT(sweep_sizes(8, 40, 16, 1).value(), ElementsAre(8, 24, 40));
  EXPECT_THAT(sweep_sizes(8, 8, 0, 2).value(), ElementsAre(8));
  EXPECT_THAT(sweep_sizes(0, 0, 0, 2).value(), ElementsAre(0));
}

TEST(SweepSizes, DoesNotOverflow) {
  const size_t max = std::numeric_limits<size_t>::max();
  EXPECT_THAT(sweep_sizes(max / 2 + 1, max, 0, 2).value(), ElementsAre(max / 2 + 1));
  EXPECT_THAT(sweep_sizes(max - 1, max, 5, 1).value(), ElementsAre(max - 1));
}

TEST(SweepSizes, RefusesSweepsThatNeverEnd) {
  EXPECT_FALSE(sweep_sizes(16, 8, 0, 2).is_ok());
  EXPECT_FALSE(sweep_sizes(0, 8, 0, 2).is_ok());
  EXPECT_FALSE(sweep_sizes(8, 16, 0, 1).is_ok());
  EXPECT_FALSE(sweep_sizes(0, size_t{1} << 30, 1, 1).is_ok());
}

}  // namespace
}  // namespace hdt::bench
