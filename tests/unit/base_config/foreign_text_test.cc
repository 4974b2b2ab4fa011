// foreign_text_test.cc: limits of texts, and arithmetic, with what comes from elsewhere.
#include "base/foreign_text.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/foreign_json.h"
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

TEST(ForeignText, OnlyPlainTextStandsOnATerminal) {
  for (const char* text : {"", "rank 3 ended: no space",
                           "Gr\xc3\xb6\xc3\x9f"
                           "e \xe2\x82\xac \xf0\x9f\x98\x80"}) {
    EXPECT_TRUE(is_plain_text(text)) << text;
    EXPECT_EQ(to_plain_text(text), text);
  }
  const std::pair<std::string, std::string> cases[] = {
      {"a\xff"
       "b",
       "a?b"},  // leads nothing
      {"\x1b[2J\nforged line\t\x7f", "?[2J?forged line??"},
      {std::string("a\0b", 3), "a?b"},
      {"cut \xe2\x82", "cut ??"},           // the text ends within a character
      {"\xc0\xaf \xe0\x80\xaf", "?? ???"},  // overlong
      {"\xed\xa0\x80", "???"},              // a surrogate
      {"\xf4\x90\x80\x80", "????"},         // beyond U+10FFFF
      {"\xc2\x9b"
       "31m",
       "??31m"},  // a control sequence in one character
  };
  for (const auto& [text, plain] : cases) {
    EXPECT_FALSE(is_plain_text(text)) << plain;
    EXPECT_EQ(to_plain_text(text), plain);
  }
}

TEST(ForeignText, DataMayHoldControlCharacters) {
  for (const std::string& text : {std::string("a\0\n\x7f", 4), std::string("\xc2\x80 \xc2\x9f \xc2\xa0"),
                                  std::string("\xe2\x82\xac \xf0\x9f\x98\x80 \xed\x9f\xbf \xf4\x8f\xbf\xbf")})
    EXPECT_TRUE(is_utf8(text)) << text;
  for (const char* text : {"\xff", "\x80", "\xc2", "\xc2 ", "\xc1\x80", "\xe2\x82", "\xe0\x80\xaf",
                           "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf0\x80\x80\x80"})
    EXPECT_FALSE(is_utf8(text)) << text;
  const auto json = parse_foreign_data("{\"a\": \"1\\n\\u0000\"}", 100);
  ASSERT_TRUE(json.is_ok()) << json.status().message();
  EXPECT_EQ(json.value()["a"], std::string("1\n\0", 3));
  EXPECT_FALSE(parse_foreign_data("{}", 1).is_ok());
  EXPECT_FALSE(parse_foreign_data(std::string(kMaxJsonDepth + 1, '['), 1000).is_ok());
  EXPECT_FALSE(parse_foreign_data("\"\xff\"", 1000).is_ok());
}

TEST(ForeignText, TextsInJsonArePlain) {
  const auto json = parse_foreign_json(R"({"why": ["\u001b[2J", "a \u0000", 3]})");
  ASSERT_TRUE(json.is_ok()) << json.status().message();
  EXPECT_EQ(json.value().dump(), R"({"why":["?[2J","a ?",3]})");
  EXPECT_FALSE(parse_foreign_json(R"([{"\u001b[2J": 1}])").is_ok());
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
