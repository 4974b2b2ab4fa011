// crc32c.cc: CRC-32C (RFC 3720, appendix B.4) by a table of 256 entries, a byte at a time. Records are
// short and rare, so that is fast enough.
#include "training/data/crc32c.h"

#include <array>

namespace hdt::training {
namespace {

constexpr uint32_t kReflectedPolynomial = 0x82f63b78;
constexpr uint32_t kMaskDelta = 0xa282ead8;  // of TFRecord's masking

// The checksum's change by each value of a byte.
constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kReflectedPolynomial : 0);
    table[byte] = value;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = make_table();

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t value = 0xffffffff;
  for (const char byte : bytes)
    value = (value >> 8) ^ kTable[(value ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~value;
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t value = crc32c(bytes);
  return ((value >> 15) | (value << 17)) + kMaskDelta;
}

}  // namespace hdt::training
