// crc32c.h: the Castagnoli CRC (RFC 3720, appendix B.4), by the processor's instruction where it has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hdt::transport {

// Of `bytes`, going on from the `crc` of what was before them (0 at the start).
uint32_t crc32c(uint32_t crc, std::span<const std::byte> bytes);
// The same without the instruction.
uint32_t crc32c_portable(uint32_t crc, std::span<const std::byte> bytes);

}  // namespace hdt::transport
