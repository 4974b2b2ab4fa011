// crc32c.cc: see crc32c.h.
#include "transports/link/crc32c.h"

#include <array>
#include <cstring>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace hdt::transport {

namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

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

}  // namespace hdt::transport
