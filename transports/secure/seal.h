// seal.h: Sealer and Opener by AES-128-GCM, or by GMAC for Protection::kMac: the same cipher with all bytes
// as additional data, which is authenticated and not encrypted. The nonce comes from the number of the piece,
// so a piece that was changed, left out, repeated or moved is not accepted. After kKeyBytes both ends derive
// the next key from the present one, at the same piece. So the bounds of GCM hold for connections of any
// length, and an old key cannot be computed from a newer one.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "transports/secure/secure.h"

namespace hdt::transport::secure {

// The secret of one direction, from which its keys are derived.
inline constexpr size_t kSecretBytes = 32;
using Secret = std::array<uint8_t, kSecretBytes>;

// The bytes protected by one key: 2^38, which is 2^34 blocks of AES. An attacker's advantage stays below
// 2^-59.
inline constexpr uint64_t kKeyBytes = uint64_t{1} << 38;

// Makes one end of a direction. Both ends need the same arguments. `protection` is not kNone. `key_bytes`:
// after how many bytes the key changes; tests use fewer. kSystem if OpenSSL fails.
Result<std::unique_ptr<Sealer>> make_sealer(Protection protection, const Secret& secret,
                                            uint64_t key_bytes = kKeyBytes);
Result<std::unique_ptr<Opener>> make_opener(Protection protection, const Secret& secret,
                                            uint64_t key_bytes = kKeyBytes);

// HKDF-SHA256 (RFC 5869), extract and expand, without a salt. Fills `output`, of at most 255 * 32 bytes.
// kSystem if OpenSSL fails.
Status hkdf_sha256(std::span<const uint8_t> key, const std::string& info, std::span<uint8_t> output);

}  // namespace hdt::transport::secure
