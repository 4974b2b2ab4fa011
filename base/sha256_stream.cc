// sha256_stream.cc: OpenSSL's digest, a piece at a time.
#include "base/sha256_stream.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "base/hmac.h"
#include "base/signing.h"

namespace hdt {

Sha256Stream::Sha256Stream()
    : context_(EVP_MD_CTX_new(), [](void* context) { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context)); }) {
  auto* const context = static_cast<EVP_MD_CTX*>(context_.get());
  good_ = context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1;
}

void Sha256Stream::update(std::span<const std::byte> bytes) {
  auto* const context = static_cast<EVP_MD_CTX*>(context_.get());
  good_ = good_ && EVP_DigestUpdate(context, bytes.data(), bytes.size()) == 1;
}

Result<std::string> Sha256Stream::finish() {
  auto* const context = static_cast<EVP_MD_CTX*>(context_.get());
  std::array<unsigned char, kSha256Bytes> digest{};
  unsigned size = 0;
  if (!good_ || EVP_DigestFinal_ex(context, digest.data(), &size) != 1 || size != digest.size()) {
    return Status(Code::kSystem, "OpenSSL refuses SHA-256");
  }
  return hex_text(digest);
}

bool is_sha256_text(std::string_view text) {
  return text.size() == 2 * kSha256Bytes && std::ranges::all_of(text, [](char digit) {
           return (digit >= '0' && digit <= '9') || (digit >= 'a' && digit <= 'f');
         });
}

}  // namespace hdt
