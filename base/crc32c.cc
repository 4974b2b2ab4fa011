// crc32c.cc: the CRC by a table of 256 entries, one step a byte, and by SSE 4.2's instruction, one step for 8
// bytes. The register begins as ~crc and is inverted again at the end, as RFC 3720 demands; so a result can
// be passed as the next call's `crc`.
#include "base/crc32c.h"

#include <array>
#include <cstring>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace hdt {

namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // 0x1edc6f41 of the RFC with its bits reflected

// Entry b is the effect of a register whose lowest byte is b after 8 shifts.

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    table[byte] = value;
  }
  return table;
}

constexpr auto kTable = make_table();

#if defined(__x86_64__)
// Compiled for SSE 4.2 alone, whatever the rest is compiled for; crc32c() calls it only where the processor
// has the instruction. memcpy reads words that need not be aligned.
__attribute__((target("sse4.2"))) uint32_t crc32c_by_instruction(uint32_t crc,
                                                                 std::span<const std::byte> bytes) {
  uint64_t value = ~crc;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    value = _mm_crc32_u64(value, word);
  }
  auto tail = static_cast<uint32_t>(value);
  for (; left > 0; --left, ++at) tail = _mm_crc32_u8(tail, static_cast<uint8_t>(*at));
  return ~tail;
}
#endif

}  // namespace

uint32_t crc32c_portable(uint32_t crc, std::span<const std::byte> bytes) {
  uint32_t value = ~crc;
  for (const std::byte byte : bytes)
    value = (value >> 8) ^ kTable[(value ^ static_cast<uint32_t>(byte)) & 0xff];
  return ~value;
}

uint32_t crc32c(uint32_t crc, std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return crc32c_by_instruction(crc, bytes);
#endif
  return crc32c_portable(crc, bytes);
}

}  // namespace hdt
