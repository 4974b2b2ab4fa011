// Pieces: what one end seals, the other one opens, and nothing else.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "tests/unit/transports/random_bytes.h"
#include "transports/secure/seal.h"

namespace hdt::transport::secure {

namespace {

using Octets = std::vector<std::byte>;

Octets some(size_t bytes, uint64_t seed) { return transport::random_bytes(bytes, seed); }

Secret secret(uint8_t fill) {
  Secret made{};
  made.fill(fill);
  return made;
}

struct Piece {
  Octets wire;
  Tag tag{};
  bool operator==(const Piece&) const = default;
};

Piece seal(Sealer& sealer, const Octets& plain, size_t step) {
  Piece piece{Octets(plain.size()), {}};
  EXPECT_TRUE(sealer.begin());
  for (size_t at = 0; at < plain.size(); at += step)
    EXPECT_TRUE(sealer.update(plain.data() + at, std::min(step, plain.size() - at), piece.wire.data() + at));
  EXPECT_TRUE(sealer.finish(piece.tag));
  return piece;
}

// The plain text; nothing if the piece is not accepted.
std::optional<Octets> open(Opener& opener, const Piece& piece, size_t step) {
  Octets plain(piece.wire.size());
  if (!opener.begin()) return std::nullopt;
  for (size_t at = 0; at < plain.size(); at += step) {
    if (!opener.update(piece.wire.data() + at, std::min(step, plain.size() - at), plain.data() + at))
      return std::nullopt;
  }
  if (!opener.finish(piece.tag)) return std::nullopt;
  return plain;
}

}  // namespace

class Pieces : public testing::TestWithParam<Protection> {
 protected:
  std::unique_ptr<Sealer> sealer(uint8_t key = 1, uint64_t key_bytes = kKeyBytes) {
    return make_sealer(GetParam(), secret(key), key_bytes).take();
  }
  std::unique_ptr<Opener> opener(uint8_t key = 1, uint64_t key_bytes = kKeyBytes) {
    return make_opener(GetParam(), secret(key), key_bytes).take();
  }
};
INSTANTIATE_TEST_SUITE_P(Both, Pieces, testing::Values(Protection::kMac, Protection::kEncrypt),
                         [](const auto& param) { return std::string(name_of(param.param)); });

TEST_P(Pieces, OpenToWhatWasSealedHoweverBothCutThem) {
  const auto seals = sealer();
  const auto opens = opener();
  for (const size_t bytes : {0, 1, 15, 16, 17, 96, 4096, 70'001}) {
    const Octets plain = some(bytes, bytes + 1);
    const Piece piece = seal(*seals, plain, 1000);
    EXPECT_EQ(piece.wire == plain, GetParam() == Protection::kMac || bytes == 0);
    EXPECT_EQ(open(*opens, piece, 333), plain);
  }
}

TEST_P(Pieces, AChangedBitAnywhereIsNotAccepted) {
  const Octets plain = some(96, 5);
  const Piece good = seal(*sealer(), plain, plain.size());
  for (size_t bit = 0; bit < 8 * (plain.size() + kTagBytes); ++bit) {
    Piece bad = good;
    std::byte& byte = bit / 8 < plain.size() ? bad.wire[bit / 8] : bad.tag[bit / 8 - plain.size()];
    byte ^= std::byte{1} << (bit % 8);
    EXPECT_EQ(open(*opener(), bad, plain.size()), std::nullopt) << "bit " << bit;
  }
  EXPECT_EQ(open(*opener(), good, plain.size()), plain);
}

TEST_P(Pieces, ShorterOrLongerIsNotAccepted) {
  const Piece good = seal(*sealer(), some(40, 6), 40);
  for (const size_t bytes : {0, 1, 39, 41, 56}) {
    Piece bad = good;
    bad.wire.resize(bytes);
    EXPECT_EQ(open(*opener(), bad, 100), std::nullopt) << bytes;
  }
}

TEST_P(Pieces, RepeatedLeftOutOrExchangedIsNotAccepted) {
  const auto seals = sealer();
  std::vector<Piece> pieces;
  for (uint64_t i = 0; i < 3; ++i) pieces.push_back(seal(*seals, some(32, 7), 32));
  EXPECT_NE(pieces[0], pieces[1]) << "the same again must not look the same";
  auto opens = opener();
  EXPECT_TRUE(open(*opens, pieces[0], 32));
  EXPECT_FALSE(open(*opens, pieces[0], 32)) << "repeated";
  opens = opener();
  EXPECT_FALSE(open(*opens, pieces[1], 32)) << "the first is left out";
  opens = opener();
  EXPECT_TRUE(open(*opens, pieces[0], 32));
  EXPECT_FALSE(open(*opens, pieces[2], 32)) << "exchanged";
}

TEST_P(Pieces, OfAnotherKeyOrProtectionAreNotAccepted) {
  const Piece piece = seal(*sealer(1), some(32, 8), 32);
  EXPECT_FALSE(open(*opener(2), piece, 32));
  const Protection other = GetParam() == Protection::kMac ? Protection::kEncrypt : Protection::kMac;
  EXPECT_FALSE(open(*make_opener(other, secret(1)).take(), piece, 32));
}

TEST_P(Pieces, BothEndsTakeTheNextKeyAtTheSamePiece) {
  const uint64_t kFewBytes = 10'000;
  const auto seals = sealer(1, kFewBytes);
  const auto opens = opener(1, kFewBytes);
  const auto keeps = opener(1);
  std::mt19937_64 random(seed_of_run());
  size_t unlike = 0;
  for (int i = 0; i < 200; ++i) {
    const Octets plain = some(random() % 3000, random());
    const Piece piece = seal(*seals, plain, 512);
    ASSERT_EQ(open(*opens, piece, 700), plain) << "piece " << i;
    unlike += open(*keeps, piece, 700) == plain ? 0 : 1;
  }
  EXPECT_GT(unlike, 100U) << "the key did not change";
}

TEST(Hkdf, AgreesWithTheRfc) {
  const std::vector<uint8_t> key(22, 0x0b);  // RFC 5869, A.3
  std::array<uint8_t, 42> made{};
  ASSERT_TRUE(hkdf_sha256(key, "", made).is_ok());
  const std::array<uint8_t, 42> expected = {0x8d, 0xa4, 0xe7, 0x75, 0xa5, 0x63, 0xc1, 0x8f, 0x71, 0x5f, 0x80,
                                            0x2a, 0x06, 0x3c, 0x5a, 0x31, 0xb8, 0xa1, 0x1f, 0x5c, 0x5e, 0xe1,
                                            0x87, 0x9e, 0xc3, 0x45, 0x4e, 0x5f, 0x3c, 0x73, 0x8d, 0x2d, 0x9d,
                                            0x20, 0x13, 0x95, 0xfa, 0xa4, 0xb6, 0x1a, 0x96, 0xc8};
  EXPECT_EQ(made, expected);
}

}  // namespace hdt::transport::secure
