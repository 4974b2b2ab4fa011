// hmac.h: the cryptography of daemons proving a shared key to each other: SHA-256, HMAC-SHA256, random bytes
// and a comparison whose time tells nothing. On OpenSSL and getrandom.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace hdt {

inline constexpr size_t kSha256Bytes = 32;
using Sha256Digest = std::array<uint8_t, kSha256Bytes>;

// OpenSSL cleans up when the process ends. What is destroyed then and still needs cryptography, as a daemon
// that says goodbye, calls this when it is made: OpenSSL is cleaned up after it.
void start_cryptography();

Result<Sha256Digest> sha256(std::span<const uint8_t> data);

// HMAC-SHA256 (RFC 2104, FIPS 180-4). The key may have any length.
Result<Sha256Digest> hmac_sha256(std::span<const uint8_t> key, std::span<const uint8_t> data);

// Whether both are equal, in a time that depends on the lengths only.
bool equal_in_constant_time(std::span<const uint8_t> a, std::span<const uint8_t> b);

// Fills `out` from the system's generator.
Status random_bytes(std::span<uint8_t> out);

}  // namespace hdt
