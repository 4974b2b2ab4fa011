// hmac_test.cc: the test vectors of RFC 4231 (HMAC-SHA256) and FIPS 180-4 (SHA-256).
#include "base/hmac.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace hdt {
namespace {

std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::vector<uint8_t> repeated(uint8_t value, size_t count) { return std::vector<uint8_t>(count, value); }

std::string hex(const Sha256Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

struct Vector {
  std::vector<uint8_t> key;
  std::vector<uint8_t> data;
  const char* digest;
};

TEST(Hmac, Rfc4231) {
  std::vector<uint8_t> counted;
  for (uint8_t i = 1; i <= 25; ++i) counted.push_back(i);
  const Vector vectors[] = {
      {repeated(0x0b, 20), bytes("Hi There"),
       "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
      {bytes("Jefe"), bytes("what do ya want for nothing?"),
       "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
      {repeated(0xaa, 20), repeated(0xdd, 50),
       "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
      {counted, repeated(0xcd, 50), "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
      {repeated(0xaa, 131), bytes("Test Using Larger Than Block-Size Key - Hash Key First"),
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
      {repeated(0xaa, 131),
       bytes("This is a test using a larger than block-size key and a larger than block-size data. The key "
             "needs to "
             "be hashed before being used by the HMAC algorithm."),
       "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
      {{}, {}, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad"},
  };
  for (const Vector& vector : vectors) {
    const Result<Sha256Digest> digest = hmac_sha256(vector.key, vector.data);
    ASSERT_TRUE(digest.is_ok());
    EXPECT_EQ(hex(digest.value()), vector.digest);
  }
}

TEST(Hmac, AnEmptyKeyDoesNotTakeTheOneBefore) {
  const Sha256Digest keyed = hmac_sha256(bytes("key"), bytes("data")).take();
  const Sha256Digest empty = hmac_sha256({}, bytes("data")).take();
  EXPECT_NE(keyed, empty);
  EXPECT_EQ(empty,
            hmac_sha256(repeated(0, 64), bytes("data")).take());  // keys are padded with zeros to a block
}

TEST(Sha256, Fips180) {
  EXPECT_EQ(hex(sha256({}).take()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256(bytes("abc")).take()),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256(bytes("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")).take()),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(ConstantTimeCompare, EqualOnlyIfLengthAndBytesAre) {
  EXPECT_TRUE(equal_in_constant_time(bytes("abc"), bytes("abc")));
  EXPECT_TRUE(equal_in_constant_time({}, {}));
  EXPECT_FALSE(equal_in_constant_time(bytes("abc"), bytes("abd")));
  EXPECT_FALSE(equal_in_constant_time(bytes("abc"), bytes("abcd")));
  EXPECT_FALSE(equal_in_constant_time(bytes("bbc"), bytes("abc")));
}

TEST(RandomBytes, FillAllAndDiffer) {
  std::set<std::vector<uint8_t>> seen;
  for (int i = 0; i < 16; ++i) {
    std::vector<uint8_t> value(32);
    ASSERT_TRUE(random_bytes(value).is_ok());
    seen.insert(value);
  }
  EXPECT_EQ(seen.size(), 16U);
  std::vector<uint8_t> large(1 << 20);  // larger than one getrandom call gives uninterrupted
  ASSERT_TRUE(random_bytes(large).is_ok());
  // All zero in 64 random bytes happens once in 2^512.
  EXPECT_NE(std::vector<uint8_t>(large.end() - 64, large.end()), std::vector<uint8_t>(64));
  EXPECT_TRUE(random_bytes({}).is_ok());
}

}  // namespace
}  // namespace hdt
