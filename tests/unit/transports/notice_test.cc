// notice_test.cc: the bodies of a link's notices, byte by byte, as transports/link/notice.h describes them.
#include "transports/link/notice.h"

#include <gtest/gtest.h>

#include <string>

namespace hdt::transport {
namespace {

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Whoever changes these bytes gives kNoticeMagic a new number.
TEST(Notice, TheBytesOfThisVersion) {
  const auto hello = encode(HelloBody{1, 2, 3});
  EXPECT_EQ(text_of(hello), std::string("\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\3\0\0\0", 20));
  const auto lost = encode(RailLostBody{4, 5});
  EXPECT_EQ(text_of(lost), std::string("\4\0\0\0\5\0\0\0\0\0\0\0", 12));
  ASSERT_TRUE(decode_hello(hello) && decode_rail_lost(lost));
  EXPECT_EQ(decode_hello(hello)->peer_link, 2U);
  EXPECT_EQ(decode_hello(hello)->rail, 3U);
  EXPECT_EQ(decode_rail_lost(lost)->received, 5U);
  EXPECT_FALSE(decode_hello(lost) || decode_rail_lost(hello));
  EXPECT_FALSE(decode_hello(encode(HelloBody{0, 2, 3}))) << "a link without a number";
}

}  // namespace
}  // namespace hdt::transport
