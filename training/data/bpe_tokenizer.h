// bpe_tokenizer.h: byte-level byte pair encoding, as GPT-2 has it (Radford et al. 2019, "Language models are
// unsupervised multitask learners"; Sennrich et al. 2016 for the merges).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "training/data/text_pattern.h"
#include "training/data/tokenizer.h"

namespace hdt::training {

// The expression by which GPT-2 cuts text into words, with Unicode's white space.
extern const char* const kGpt2Pattern;

// The character that stands for a byte in vocabularies, as UTF-8: printable ones for themselves, the others
// from U+0100 on.
const std::string& byte_character(unsigned char byte);

// What a tokenizer is made of. Foreign: create() checks it.
struct BpeParts {
  std::map<std::string, int64_t> vocabulary;                  // tokens in byte characters
  std::vector<std::pair<std::string, std::string>> merges;    // in the order of their ranks
  std::vector<TextPattern> patterns;                          // applied one after the other
  std::vector<std::pair<std::string, int64_t>> added_tokens;  // found in the text before all else
  std::optional<int64_t> end_of_document;
  bool whole_words_first = false;  // a word that is a token is not merged (`ignore_merges`)
  bool space_before = false;       // a text that does not begin with a space gets one
};

// Encoding: added tokens are cut out; patterns cut the rest into words; the bytes of a word are merged, the
// pair of the lowest rank first. A word of n bytes costs n log n.
class BpeTokenizer final : public Tokenizer {
 public:
  static constexpr int64_t kMostTokens = int64_t{1} << 24;

  // kInvalidArgument: a byte has no token, a merge or its result is not in the vocabulary, or a number is
  // used twice or out of range.
  static Result<std::unique_ptr<Tokenizer>> create(BpeParts parts);

  int64_t vocab_size() const override { return static_cast<int64_t>(texts_.size()); }
  std::optional<int64_t> end_of_document() const override { return end_of_document_; }
  Result<std::vector<int64_t>> encode(std::string_view text) const override;
  std::string decode(std::span<const int64_t> tokens) const override;

 private:
  struct Merge {
    uint32_t rank = 0;
    int32_t result = 0;
  };
  BpeTokenizer() = default;
  Status take_added_tokens(const std::vector<std::pair<std::string, int64_t>>& added);
  // Where the next added token begins at or after `from`, and which one it is; npos: there is none.
  std::pair<size_t, const std::pair<std::string, int64_t>*> next_added(std::string_view text,
                                                                       size_t from) const;
  Status encode_plain(std::string_view text, std::vector<int64_t>& tokens) const;
  Status encode_words(std::string_view text, size_t pattern, std::vector<int64_t>& tokens) const;
  void encode_word(std::string_view word, std::vector<int64_t>& tokens) const;

  std::vector<std::string> texts_;                  // by token, in bytes; "" for numbers that are not used
  std::unordered_map<std::string, int32_t> words_;  // for whole_words_first
  std::vector<int32_t> bytes_;                      // the token of each byte
  std::unordered_map<uint64_t, Merge> merges_;      // by left << 32 | right
  std::vector<TextPattern> patterns_;
  std::vector<std::pair<std::string, int64_t>> added_;  // longest first
  std::vector<bool> added_begins_;                      // by first byte
  std::optional<int64_t> end_of_document_;
  bool space_before_ = false;
};

}  // namespace hdt::training
