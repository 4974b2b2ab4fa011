// foreign_text_test.cc: limits of texts, and arithmetic, with what comes from elsewhere.
#include "base/foreign_text.h"

#include <gtest/gtest.h>

#include <string>

#include "base/saturate.h"

namespace hdt {
namespace {

std::string nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(ForeignText, JsonIsAsDeepAndAsLongAsAllowed) {
  EXPECT_TRUE(check_json_limits(nested(kMaxJsonDepth), 1000).is_ok());
  EXPECT_FALSE(check_json_limits(nested(kMaxJsonDepth + 1), 1000).is_ok());
  EXPECT_FALSE(check_json_limits(nested(10), 19).is_ok());
  const std::string brackets(1000, '[');
  EXPECT_TRUE(check_json_limits("[\"" + brackets + "\\\"" + brackets + "\"]", 10'000).is_ok())
      << "in a string";
  EXPECT_FALSE(check_json_limits("\"\\\\\"" + brackets, 10'000).is_ok()) << "behind a string";
}

TEST(ForeignText, TomlIsAsDeepAndAsLongAsAllowed) {
  std::string key = "a";
  for (size_t part = 1; part < kMaxTomlDepth; ++part) key += " . a";
  EXPECT_TRUE(check_toml_limits(key + " = 1\n[" + key + "]\nb.c = [1.5, 2.5] # " + key + key).is_ok());
  EXPECT_FALSE(check_toml_limits(key + ".a = 1").is_ok());
  EXPECT_FALSE(check_toml_limits("[" + key + ".\"a\"]").is_ok());
  EXPECT_FALSE(check_toml_limits("a = { " + key + ".a = 1 }").is_ok());
  EXPECT_FALSE(check_toml_limits("a = " + nested(kMaxTomlDepth + 1)).is_ok());
  EXPECT_TRUE(check_toml_limits("a = \"" + nested(1000) + "\"").is_ok());
  const std::string deep = "a = " + nested(kMaxTomlDepth + 1);
  for (const char* text : {R"("""a"b""")", R"("""a\"""b""")", R"("""""a""""")", "'''a'b\\'''", R"("")"}) {
    EXPECT_FALSE(check_toml_limits(std::string("t = ") + text + "\n" + deep).is_ok()) << "behind " << text;
  }
  EXPECT_TRUE(check_toml_limits("t = \"\"\"a\"" + nested(1000) + "\"\"\"").is_ok());
  EXPECT_FALSE(check_toml_limits(std::string(kMaxTomlBytes + 1, ' ')).is_ok());
}

TEST(Saturate, StopsAtTheEnds) {
  EXPECT_EQ(saturating_add(INT64_MAX, int64_t{1}), INT64_MAX);
  EXPECT_EQ(saturating_add(INT64_MIN, int64_t{-1}), INT64_MIN);
  EXPECT_EQ(saturating_add(int64_t{2}, int64_t{-3}), -1);
  EXPECT_EQ(saturating_sub(INT64_MIN, 1), INT64_MIN);
  EXPECT_EQ(saturating_sub(0, INT64_MIN), INT64_MAX);
}

}  // namespace
}  // namespace hdt
