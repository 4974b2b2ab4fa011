// signing.cc: OpenSSL behind signing.h. Ed25519 signs the data itself and hashes it inside, so the calls
// name no digest.
#include "base/signing.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <charconv>

namespace hdt {

namespace {

// The seed of RFC 8032 from which the pair is computed.
using Secret = std::array<uint8_t, 32>;
using DigestContext = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

// OpenSSL refused something. Its own error texts are not shown, as they say no more.
Status cannot(const char* what) {
  return {Code::kSystem, std::string("OpenSSL cannot ") + what + " with Ed25519"};
}

}  // namespace

// The handle is a shared_ptr<void>, so that the header needs no OpenSSL.
Result<SigningKey> SigningKey::own(void* key) {
  std::shared_ptr<void> owner(key, [](void* pair) { EVP_PKEY_free(static_cast<EVP_PKEY*>(pair)); });
  PublicKey half{};
  size_t size = half.size();
  if (EVP_PKEY_get_raw_public_key(static_cast<EVP_PKEY*>(key), half.data(), &size) != 1 ||
      size != half.size())
    return cannot("tell a public key");
  return SigningKey(std::move(owner), half);
}

Result<SigningKey> SigningKey::make() {
  // From OpenSSL's own generator, which the kernel seeds.
  EVP_PKEY* const key = EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
  if (key == nullptr) return cannot("make a key");
  return own(key);
}

Result<SigningKey> SigningKey::parse(const std::string& text) {
  Secret secret{};
  if (!parse_hex(text, secret)) return Status(Code::kConfig, "expected a node key of 64 hexadecimal digits");
  EVP_PKEY* const key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, secret.data(), secret.size());
  if (key == nullptr) return cannot("take a key");
  return own(key);
}

std::string SigningKey::text() const {
  Secret secret{};
  size_t size = secret.size();
  if (EVP_PKEY_get_raw_private_key(static_cast<EVP_PKEY*>(key_.get()), secret.data(), &size) != 1) return "";
  return hex_text(secret);
}

Result<Signature> SigningKey::sign(std::span<const uint8_t> data) const {
  const DigestContext context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  Signature signature{};
  size_t size = signature.size();
  auto* const key = static_cast<EVP_PKEY*>(key_.get());
  if (context == nullptr || EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key) != 1 ||
      EVP_DigestSign(context.get(), signature.data(), &size, data.data(), data.size()) != 1 ||
      size != signature.size())
    return cannot("sign");
  return signature;
}

// The key is foreign: with one that is no point on the curve no signature verifies.
bool is_signed_by(const PublicKey& key, std::span<const uint8_t> data, const Signature& signature) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> half(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, key.data(), key.size()), &EVP_PKEY_free);
  const DigestContext context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  return half != nullptr && context != nullptr &&
         EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, half.get()) == 1 &&
         EVP_DigestVerify(context.get(), signature.data(), signature.size(), data.data(), data.size()) == 1;
}

std::string hex_text(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

// Two digits are parsed at a time; from_chars() must have consumed both.
bool parse_hex(const std::string& text, std::span<uint8_t> bytes) {
  if (text.size() != 2 * bytes.size()) return false;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char* const first = text.data() + 2 * i;
    if (std::from_chars(first, first + 2, bytes[i], 16).ptr != first + 2) return false;
  }
  return true;
}

}  // namespace hdt
