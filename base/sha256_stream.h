// sha256_stream.h: SHA-256 of bytes that come in pieces, such as those of a file. It uses OpenSSL.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hdt {

// One hash that is being computed. Not thread-safe. A failure of OpenSSL is kept and reported by finish().
class Sha256Stream {
 public:
  Sha256Stream();
  void update(std::span<const std::byte> bytes);
  // The hash as 64 hex digits; to be called once. kSystem: OpenSSL refuses.
  Result<std::string> finish();

 private:
  std::shared_ptr<void> context_;  // EVP_MD_CTX
  bool good_ = false;
};

// Whether a text is what finish() returns for some bytes: 64 digits of 0-9a-f.
bool is_sha256_text(std::string_view text);

}  // namespace hdt
