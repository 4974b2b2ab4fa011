// tokenizer.h: text to tokens and back. Which tokenizer: tokenizer_choice.h. Here is the byte-level one,
// whose tokens are the bytes of the text, plus one that ends a document.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hdt::training {

// Const after it is made, so any number of threads may use one.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Tokens are 0 .. vocab_size() - 1; a model may pad its embedding to more.
  virtual int64_t vocab_size() const = 0;
  // The token that ends a document; nothing if the vocabulary has none.
  virtual std::optional<int64_t> end_of_document() const = 0;
  // The tokens of `text`; no end-of-document token is added. kInvalidArgument: the text is none that this
  // tokenizer can encode (no UTF-8).
  virtual Result<std::vector<int64_t>> encode(std::string_view text) const = 0;
  // The text of `tokens`. A token that is not in the vocabulary (a padding token that a model has sampled),
  // or that ends a document, adds nothing.
  virtual std::string decode(std::span<const int64_t> tokens) const = 0;
};

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

// The same behind the interface.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

}  // namespace hdt::training
