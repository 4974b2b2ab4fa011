// hmac.h: the cryptography with which daemons prove to each other that they share a key: SHA-256,
// HMAC-SHA256, random bytes, and a comparison whose time reveals nothing about the contents. It uses
// OpenSSL and getrandom. All functions may be called from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace hdt {

inline constexpr size_t kSha256Bytes = 32;
using Sha256Digest = std::array<uint8_t, kSha256Bytes>;

// Makes OpenSSL's clean-up at exit run after the destruction of the caller's object. OpenSSL cleans up
// when the process ends. An object that is destroyed at that time and still needs cryptography, such as
// an embedded daemon that says goodbye to its peers, calls this when it is made.
void start_cryptography();

// SHA-256 (FIPS 180-4). kSystem: OpenSSL refuses.
Result<Sha256Digest> sha256(std::span<const uint8_t> data);

// HMAC-SHA256 (RFC 2104, FIPS 180-4). The key may have any length up to 2 GiB, and may be empty; a
// longer one is kInvalidArgument. kSystem: OpenSSL refuses.
Result<Sha256Digest> hmac_sha256(std::span<const uint8_t> key, std::span<const uint8_t> data);

// Whether both are equal. The time depends on the lengths only, so a peer that guesses a digest cannot
// learn from the time how many bytes of its guess were right.
bool equal_in_constant_time(std::span<const uint8_t> a, std::span<const uint8_t> b);

// Fills `out` from the kernel's generator. Waits only early at boot, until the generator is seeded.
Status random_bytes(std::span<uint8_t> out);

}  // namespace hdt
