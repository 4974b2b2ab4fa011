// crc32c.h: the CRC-32C (Castagnoli) checksum, and the masked form that the TFRecord framing stores.
#pragma once

#include <cstdint>
#include <string_view>

namespace hdt::training {

// The checksum of the bytes: the polynomial 0x1EDC6F41, reflected, starting from and XORed with all ones.
uint32_t crc32c(std::string_view bytes);
// The checksum, rotated by 15 bits and with a constant added, as TFRecord files store it. A checksum
// over data that holds checksums is then no special case.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace hdt::training
