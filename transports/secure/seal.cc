// seal.cc: AES-128-GCM piece by piece, with OpenSSL's EVP interface (see seal.h).
//
// From a direction's secret HKDF derives the key and a base nonce. The nonce of piece n is the base nonce XOR
// n, as in TLS 1.3 (RFC 8446, 5.3). No nonce is used twice with a key, because n only grows and every key
// begins with its own base nonce at 0.
#include "transports/secure/seal.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>

#include <algorithm>
#include <climits>
#include <cstring>

namespace hdt::transport::secure {

namespace {

constexpr size_t kCipherKeyBytes = 16;
constexpr size_t kNonceBytes = 12;
// OpenSSL counts in int, so longer updates are cut.
constexpr size_t kMostAtOnce = size_t{1} << 30;
static_assert(kMostAtOnce <= INT_MAX);

struct FreeCipher {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};

// One end of a direction, sealing or opening: the cipher, the present key and the number of the next piece.
// GcmSealer and GcmOpener are its two faces.
class GcmPieces {
 public:
  GcmPieces(Protection protection, bool sealing, const Secret& secret, uint64_t key_bytes)
      : encrypts_(protection == Protection::kEncrypt),
        sealing_(sealing),
        key_bytes_(key_bytes),
        secret_(secret) {}
  GcmPieces(const GcmPieces&) = delete;
  GcmPieces& operator=(const GcmPieces&) = delete;
  ~GcmPieces() { OPENSSL_cleanse(secret_.data(), secret_.size()); }

  Status open() {
    cipher_.reset(EVP_CIPHER_CTX_new());
    if (cipher_ == nullptr || !set_key()) return {Code::kSystem, "OpenSSL cannot set up AES-128-GCM"};
    return Status::ok();
  }

  bool encrypts() const { return encrypts_; }

  // Both ends count the same bytes, so both change the key before the same piece.
  bool begin() {
    if (bytes_ >= key_bytes_ && !next_key()) return false;
    std::array<uint8_t, kNonceBytes> nonce = base_nonce_;
    for (size_t i = 0; i < sizeof number_; ++i)
      nonce[kNonceBytes - 1 - i] ^= static_cast<uint8_t>(number_ >> (8 * i));
    ++number_;
    bytes_ += kTagBytes;  // a piece without content uses the key as well
    return EVP_CipherInit_ex(cipher_.get(), nullptr, nullptr, nullptr, nonce.data(), sealing_ ? 1 : 0) == 1;
  }

  // With an output place OpenSSL encrypts or decrypts; without one it takes the bytes as additional data.
  bool update(const std::byte* from, size_t bytes, std::byte* to) {
    bytes_ += bytes;
    if (!encrypts_ && to != nullptr && to != from && bytes > 0) std::memcpy(to, from, bytes);
    while (bytes > 0) {
      const size_t now = std::min(bytes, kMostAtOnce);
      int written = 0;
      auto* out = encrypts_ ? reinterpret_cast<unsigned char*>(to) : nullptr;
      if (encrypts_ && out == nullptr) return false;
      if (EVP_CipherUpdate(cipher_.get(), out, &written, reinterpret_cast<const unsigned char*>(from),
                           static_cast<int>(now)) != 1)
        return false;
      from += now;
      if (to != nullptr) to += now;
      bytes -= now;
    }
    return true;
  }

  bool seal(Tag& tag) {
    return finish() && EVP_CIPHER_CTX_ctrl(cipher_.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag.data()) == 1;
  }

  bool accept(const Tag& tag) {
    Tag copy = tag;
    return EVP_CIPHER_CTX_ctrl(cipher_.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, copy.data()) == 1 && finish();
  }

 private:
  // GCM has no padding: nothing may be left to write.
  bool finish() {
    std::array<unsigned char, EVP_MAX_BLOCK_LENGTH> rest{};
    int written = 0;
    return EVP_CipherFinal_ex(cipher_.get(), rest.data(), &written) == 1 && written == 0;
  }

  // Derives key and base nonce from secret_ in one output, and begins with piece 0. The copy on the stack is
  // wiped.
  bool set_key() {
    std::array<uint8_t, kCipherKeyBytes + kNonceBytes> derived{};
    bool set = hkdf_sha256(secret_, "hdt pieces", derived).is_ok();
    std::copy(derived.begin() + kCipherKeyBytes, derived.end(), base_nonce_.begin());
    set = set && EVP_CipherInit_ex(cipher_.get(), EVP_aes_128_gcm(), nullptr, derived.data(),
                                   base_nonce_.data(), sealing_ ? 1 : 0) == 1;
    OPENSSL_cleanse(derived.data(), derived.size());
    number_ = 0;
    bytes_ = 0;
    return set;
  }

  // HKDF cannot be inverted: the next secret does not give away the present one, which is overwritten.
  bool next_key() {
    Secret next{};
    if (!hkdf_sha256(secret_, "hdt next key", next).is_ok()) return false;
    secret_ = next;
    OPENSSL_cleanse(next.data(), next.size());
    return set_key();
  }

  const bool encrypts_;
  const bool sealing_;
  const uint64_t key_bytes_;  // after how many bytes the key changes
  Secret secret_;             // of the present key; wiped by the destructor
  std::unique_ptr<EVP_CIPHER_CTX, FreeCipher> cipher_;
  std::array<uint8_t, kNonceBytes> base_nonce_{};
  uint64_t number_ = 0;  // of the next piece, with this key
  uint64_t bytes_ = 0;   // protected by this key
};

class GcmSealer final : public Sealer {
 public:
  GcmSealer(Protection protection, const Secret& secret, uint64_t key_bytes)
      : pieces_(protection, true, secret, key_bytes) {}
  Status open() { return pieces_.open(); }
  bool encrypts() const override { return pieces_.encrypts(); }
  bool begin() override { return pieces_.begin(); }
  bool update(const std::byte* from, size_t bytes, std::byte* to) override {
    return pieces_.update(from, bytes, to);
  }
  bool finish(Tag& tag) override { return pieces_.seal(tag); }

 private:
  GcmPieces pieces_;
};

class GcmOpener final : public Opener {
 public:
  GcmOpener(Protection protection, const Secret& secret, uint64_t key_bytes)
      : pieces_(protection, false, secret, key_bytes) {}
  Status open() { return pieces_.open(); }
  bool encrypts() const override { return pieces_.encrypts(); }
  bool begin() override { return pieces_.begin(); }
  bool update(const std::byte* from, size_t bytes, std::byte* to) override {
    return pieces_.update(from, bytes, to);
  }
  bool finish(const Tag& tag) override { return pieces_.accept(tag); }

 private:
  GcmPieces pieces_;
};

struct FreeKdf {
  void operator()(EVP_KDF* kdf) const { EVP_KDF_free(kdf); }
  void operator()(EVP_KDF_CTX* context) const { EVP_KDF_CTX_free(context); }
};

}  // namespace

Status hkdf_sha256(std::span<const uint8_t> key, const std::string& info, std::span<uint8_t> output) {
  const std::unique_ptr<EVP_KDF, FreeKdf> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  const std::unique_ptr<EVP_KDF_CTX, FreeKdf> context(kdf == nullptr ? nullptr : EVP_KDF_CTX_new(kdf.get()));
  // OpenSSL's parameters are not const, and are only read.
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<uint8_t*>(key.data()), key.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, const_cast<char*>(info.data()), info.size()),
      OSSL_PARAM_construct_end(),
  };
  if (context == nullptr || EVP_KDF_derive(context.get(), output.data(), output.size(), parameters) != 1)
    return {Code::kSystem, "OpenSSL cannot compute HKDF-SHA256"};
  return Status::ok();
}

Result<std::unique_ptr<Sealer>> make_sealer(Protection protection, const Secret& secret, uint64_t key_bytes) {
  auto sealer = std::make_unique<GcmSealer>(protection, secret, key_bytes);
  HDT_RETURN_IF_ERROR(sealer->open());
  return std::unique_ptr<Sealer>(std::move(sealer));
}

Result<std::unique_ptr<Opener>> make_opener(Protection protection, const Secret& secret, uint64_t key_bytes) {
  auto opener = std::make_unique<GcmOpener>(protection, secret, key_bytes);
  HDT_RETURN_IF_ERROR(opener->open());
  return std::unique_ptr<Opener>(std::move(opener));
}

}  // namespace hdt::transport::secure
