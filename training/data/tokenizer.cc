// tokenizer.cc: bytes to tokens and back.
#include "training/data/tokenizer.h"

namespace hdt::training {

std::vector<int64_t> ByteTokenizer::encode(std::string_view text) {
  std::vector<int64_t> tokens;
  tokens.reserve(text.size());
  // char may be signed, so bytes from 128 on go through unsigned char.
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  return tokens;
}

std::string ByteTokenizer::decode(std::span<const int64_t> tokens) {
  std::string text;
  text.reserve(tokens.size());
  for (const int64_t token : tokens) {
    if (token >= 0 && token < kEndOfDocument) text.push_back(static_cast<char>(token));
  }
  return text;
}

namespace {

class ByteTokenizerObject final : public Tokenizer {
 public:
  int64_t vocab_size() const override { return ByteTokenizer::kVocabSize; }
  std::optional<int64_t> end_of_document() const override { return ByteTokenizer::kEndOfDocument; }
  Result<std::vector<int64_t>> encode(std::string_view text) const override {
    return ByteTokenizer::encode(text);
  }
  std::string decode(std::span<const int64_t> tokens) const override { return ByteTokenizer::decode(tokens); }
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizerObject>(); }

}  // namespace hdt::training
