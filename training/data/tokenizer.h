// tokenizer.h: the byte-level tokenizer. A token is a byte of UTF-8 text, plus one that ends a document.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hdt::training {

// Stateless. Every text can be encoded, and decoding gives the same bytes back.
class ByteTokenizer {
 public:
  static constexpr int64_t kEndOfDocument = 256;
  static constexpr int64_t kVocabSize = 257;  // a model may pad its embedding to more

  static constexpr int64_t vocab_size() { return kVocabSize; }
  static constexpr int64_t end_of_document() { return kEndOfDocument; }

  // One token for each byte; no end-of-document token is added.
  static std::vector<int64_t> encode(std::string_view text);
  // The bytes of `tokens`. A token that is no byte (the end of a document, a padding token that a model
  // has sampled) adds nothing.
  static std::string decode(std::span<const int64_t> tokens);
};

}  // namespace hdt::training
