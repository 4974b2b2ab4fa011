// signing.h: Ed25519 signatures (RFC 8032), on OpenSSL. The owner of a key pair proves its identity to
// everyone who knows the public half. A node's daemon has one such key.
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

// A key pair that does not change once it is made. Copies share it. Any thread may use it.
class SigningKey {
 public:
  // A new random pair. kSystem: OpenSSL refuses.
  static Result<SigningKey> make();
  // The pair of a secret that text() wrote: 32 bytes as 64 hexadecimal digits. kConfig: the text is
  // something else.
  static Result<SigningKey> parse(const std::string& text);

  const PublicKey& public_key() const { return public_key_; }
  // The secret half as 64 hexadecimal digits, for the key's file and for nothing else. Empty if OpenSSL
  // refuses.
  std::string text() const;
  // The signature of `data`. The same data always gives the same signature. kSystem: OpenSSL refuses.
  Result<Signature> sign(std::span<const uint8_t> data) const;

 private:
  SigningKey(std::shared_ptr<void> key, const PublicKey& public_key)
      : key_(std::move(key)), public_key_(public_key) {}
  // Takes over `key`, an EVP_PKEY, also on failure.
  static Result<SigningKey> own(void* key);

  std::shared_ptr<void> key_;  // an EVP_PKEY, which is not changed any more
  PublicKey public_key_{};
};

// Whether `signature` is that of `data` by the owner of `key`. Also false if `key` is not a point on the
// curve, if the signature is malformed, or if OpenSSL fails.
bool is_signed_by(const PublicKey& key, std::span<const uint8_t> data, const Signature& signature);

// Two small hexadecimal digits for each byte.
std::string hex_text(std::span<const uint8_t> bytes);
// Reads what hex_text() wrote; capitals are accepted, too. Returns false if the text is not exactly
// `bytes.size()` bytes long in this form; `bytes` may then be partly written.
bool parse_hex(const std::string& text, std::span<uint8_t> bytes);

}  // namespace hdt
