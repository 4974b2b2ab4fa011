// crc32c.h: the Castagnoli CRC (RFC 3720, appendix B.4), by the processor's instruction where it has one.
// All functions give the same result on every machine, so two ends may use different ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace hdt {

// The CRC of `bytes`, continued from `crc`, the CRC of the bytes before them. At the start `crc` is 0.
uint32_t crc32c(uint32_t crc, std::span<const std::byte> bytes);
// The CRC of a whole text or record.
inline uint32_t crc32c(std::string_view bytes) { return crc32c(0, std::as_bytes(std::span(bytes))); }
// The first by a table, for processors without the instruction and for tests.
uint32_t crc32c_portable(uint32_t crc, std::span<const std::byte> bytes);

}  // namespace hdt
