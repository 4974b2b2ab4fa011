// signing.h: Ed25519 signatures (RFC 8032), on OpenSSL: a key pair whose owner proves who it is to those that
// know the public half.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace hdt {

using PublicKey = std::array<uint8_t, 32>;
using Signature = std::array<uint8_t, 64>;

class SigningKey {
 public:
  static Result<SigningKey> make();
  // The 32 bytes that text() wrote, as 64 hexadecimal digits.
  static Result<SigningKey> parse(const std::string& text);

  const PublicKey& public_key() const { return public_key_; }
  // The secret.
  std::string text() const;
  Result<Signature> sign(std::span<const uint8_t> data) const;

 private:
  SigningKey(std::shared_ptr<void> key, const PublicKey& public_key)
      : key_(std::move(key)), public_key_(public_key) {}
  static Result<SigningKey> own(void* key);

  std::shared_ptr<void> key_;  // an EVP_PKEY, which is not changed any more
  PublicKey public_key_{};
};

// False also for a key or a signature that is none.
bool is_signed_by(const PublicKey& key, std::span<const uint8_t> data, const Signature& signature);

std::string hex_text(std::span<const uint8_t> bytes);
// False: the text is not exactly as many bytes.
bool parse_hex(const std::string& text, std::span<uint8_t> bytes);

}  // namespace hdt
