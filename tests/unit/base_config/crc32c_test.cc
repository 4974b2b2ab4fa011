// crc32c_test.cc: the CRC by the processor's instruction and by the table.
#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace hdt {
namespace {

uint32_t by_table(std::string_view bytes) { return crc32c_portable(0, std::as_bytes(std::span(bytes))); }

TEST(Crc32c, KnownValuesBothWays) {
  // RFC 3720, appendix B.4.
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending.push_back(c);
  const std::string descending(ascending.rbegin(), ascending.rend());
  for (const auto crc : {static_cast<uint32_t (*)(std::string_view)>(crc32c), by_table}) {
    EXPECT_EQ(crc(std::string(32, '\0')), 0x8a9136aau);
    EXPECT_EQ(crc(std::string(32, '\xff')), 0x62a8ab43u);
    EXPECT_EQ(crc(ascending), 0x46dd794eu);
    EXPECT_EQ(crc(descending), 0x113fdb5cu);
    EXPECT_EQ(crc("123456789"), 0xe3069283u);
    EXPECT_EQ(crc(""), 0u);
  }
}

// Every length up to some words, at every alignment, in two parts.
TEST(Crc32c, InPartsBothWays) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(64);
  for (std::byte& byte : bytes) byte = std::byte(random() & 0xff);
  for (size_t begin = 0; begin < 8; ++begin) {
    for (size_t length = 0; length <= 40; ++length) {
      const auto all = std::span<const std::byte>(bytes).subspan(begin, length);
      const uint32_t whole = crc32c_portable(0, all);
      EXPECT_EQ(crc32c(0, all), whole);
      const size_t first = random() % (length + 1);
      EXPECT_EQ(crc32c(crc32c(0, all.first(first)), all.subspan(first)), whole);
      EXPECT_EQ(crc32c_portable(crc32c(0, all.first(first)), all.subspan(first)), whole);
    }
  }
}

}  // namespace
}  // namespace hdt
