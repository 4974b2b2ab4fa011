// crc32c.h: the CRC-32C (Castagnoli) checksum, and the masked form that the TFRecord framing stores.
#pragma once

#include <cstdint>
#include <string_view>

namespace hdt::training {

uint32_t crc32c(std::string_view bytes);
// Rotated and offset, so that the checksum of data that holds checksums is no special case.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace hdt::training
