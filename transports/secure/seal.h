// seal.h: Sealer and Opener by AES-128-GCM, or GMAC: the same cipher with everything as data that is only
// authenticated. The nonce is the number of the piece, so a piece that is changed, left out, repeated or out
// of its place is not accepted. After kKeyBytes the next key is derived from the last one by both ends at the
// same piece: the bounds of GCM then hold for connections of any length, and an old key cannot be computed
// from a new one.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "transports/secure/secure.h"

namespace hdt::transport::secure {

// A direction's; keys are derived from it.
inline constexpr size_t kSecretBytes = 32;
using Secret = std::array<uint8_t, kSecretBytes>;

// 2^34 blocks: an attacker's chance to tell anything is below 2^-59.
inline constexpr uint64_t kKeyBytes = uint64_t{1} << 38;

// `protection` is not kNone. `key_bytes`: tests ask for fewer.
Result<std::unique_ptr<Sealer>> make_sealer(Protection protection, const Secret& secret,
                                            uint64_t key_bytes = kKeyBytes);
Result<std::unique_ptr<Opener>> make_opener(Protection protection, const Secret& secret,
                                            uint64_t key_bytes = kKeyBytes);

// HKDF-SHA256 (RFC 5869) without a salt. `output` has at most 255 * 32 bytes.
Status hkdf_sha256(std::span<const uint8_t> key, const std::string& info, std::span<uint8_t> output);

}  // namespace hdt::transport::secure
