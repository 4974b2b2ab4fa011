// hmac.cc: OpenSSL and getrandom behind hmac.h.
#include "base/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>
#include <limits>

namespace hdt {

// Handlers of the process's end run in the reverse of the order in which they were registered. OpenSSL
// registers its own one with the first option that it is asked for, and not without any option.
void start_cryptography() { (void)OPENSSL_init_crypto(OPENSSL_INIT_ADD_ALL_DIGESTS, nullptr); }

Result<Sha256Digest> sha256(std::span<const uint8_t> data) {
  Sha256Digest digest{};
  if (EVP_Digest(data.data(), data.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1) {
    return Status(Code::kSystem, "OpenSSL cannot compute SHA-256");
  }
  return digest;
}

Result<Sha256Digest> hmac_sha256(std::span<const uint8_t> key, std::span<const uint8_t> data) {
  if (key.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    return Status(Code::kInvalidArgument, "an HMAC key of more than 2 GiB");
  }
  // HMAC() takes a null key for "the key of the call before". An empty span may have a null pointer, so
  // an empty key is given a valid one.
  static constexpr uint8_t kEmpty = 0;
  Sha256Digest digest{};
  if (HMAC(EVP_sha256(), key.empty() ? &kEmpty : key.data(), static_cast<int>(key.size()), data.data(),
           data.size(), digest.data(), nullptr) == nullptr) {
    return Status(Code::kSystem, "OpenSSL cannot compute HMAC-SHA256");
  }
  return digest;
}

bool equal_in_constant_time(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

// A read of up to 256 bytes is never cut short by a signal; longer ones are, hence the loop.
Status random_bytes(std::span<uint8_t> out) {
  while (!out.empty()) {
    const ssize_t got = getrandom(out.data(), out.size(), 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      return Status::from_errno("getrandom", errno);
    }
    out = out.subspan(static_cast<size_t>(got));
  }
  return Status::ok();
}

}  // namespace hdt
