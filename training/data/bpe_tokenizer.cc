// bpe_tokenizer.cc: checks the parts once, and then encodes with numbers only.
#include "training/data/bpe_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <queue>

namespace hdt::training {
namespace {

constexpr size_t kBytes = 256;

std::string utf8_of(unsigned int code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0U | code >> 6U), static_cast<char>(0x80U | (code & 0x3FU))};  // below U+0800
}

std::array<std::string, kBytes> make_byte_characters() {
  std::array<std::string, kBytes> characters;
  unsigned int other = 256;
  for (unsigned int byte = 0; byte < kBytes; ++byte) {
    const bool printable =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
    characters[byte] = utf8_of(printable ? byte : other++);
  }
  return characters;
}

// The bytes that a token in byte characters stands for; nothing if there is another character in it.
std::optional<std::string> bytes_of(std::string_view token) {
  static const std::unordered_map<std::string, char> bytes = [] {
    std::unordered_map<std::string, char> map;
    for (size_t byte = 0; byte < kBytes; ++byte)
      map.emplace(byte_character(static_cast<unsigned char>(byte)), static_cast<char>(byte));
    return map;
  }();
  std::string text;
  for (size_t at = 0; at < token.size();) {
    const size_t length = static_cast<unsigned char>(token[at]) < 0x80 ? 1 : 2;
    const auto found = bytes.find(std::string(token.substr(at, length)));
    if (found == bytes.end()) return std::nullopt;
    text += found->second;
    at += length;
  }
  return text;
}

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32U | static_cast<uint32_t>(right);
}

Status bad_parts(std::string why) { return {Code::kInvalidArgument, std::move(why)}; }

}  // namespace

// GPT-2's \s is Unicode's White_Space, which this class is; PCRE2's has U+180E, too.
#define WHITE_SPACE R"(\p{Z}\x{9}-\x{d}\x{85})"
const char* const kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^)" WHITE_SPACE R"(\p{L}\p{N}]+|[)" WHITE_SPACE
    R"(]+(?![^)" WHITE_SPACE R"(])|[)" WHITE_SPACE R"(]+)";
#undef WHITE_SPACE

const std::string& byte_character(unsigned char byte) {
  static const std::array<std::string, kBytes> characters = make_byte_characters();
  return characters[byte];
}

Result<std::unique_ptr<Tokenizer>> BpeTokenizer::create(BpeParts parts) {
  std::unique_ptr<BpeTokenizer> made(new BpeTokenizer);
  int64_t greatest = -1;
  for (const auto& [token, id] : parts.vocabulary) {
    if (id < 0 || id >= kMostTokens)
      return bad_parts(fmt::format("token '{}' has number {}, expected 0 to {}", token, id, kMostTokens - 1));
    greatest = std::max(greatest, id);
  }
  for (const auto& [token, id] : parts.added_tokens) {
    if (id < 0 || id >= kMostTokens || token.empty())
      return bad_parts(fmt::format("added token '{}' has number {}, expected a text and a number of 0 to {}",
                                   token, id, kMostTokens - 1));
    greatest = std::max(greatest, id);
  }
  made->texts_.resize(static_cast<size_t>(greatest) + 1);
  std::vector<bool> used(made->texts_.size());
  for (const auto& [token, id] : parts.vocabulary) {
    if (used[static_cast<size_t>(id)]) return bad_parts(fmt::format("number {} has two tokens", id));
    used[static_cast<size_t>(id)] = true;
    // A token with other characters, such as <|endoftext|> in some vocabularies, stands for itself.
    const std::optional<std::string> bytes = bytes_of(token);
    made->texts_[static_cast<size_t>(id)] = bytes ? *bytes : token;
    if (bytes && parts.whole_words_first) made->words_.emplace(*bytes, static_cast<int32_t>(id));
  }
  for (size_t byte = 0; byte < kBytes; ++byte) {
    const auto found = parts.vocabulary.find(byte_character(static_cast<unsigned char>(byte)));
    if (found == parts.vocabulary.end())
      return bad_parts(fmt::format("byte {} ('{}') has no token: this is no byte-level vocabulary", byte,
                                   byte_character(static_cast<unsigned char>(byte))));
    made->bytes_.push_back(static_cast<int32_t>(found->second));
  }
  for (size_t rank = 0; rank < parts.merges.size(); ++rank) {
    const auto& [left, right] = parts.merges[rank];
    std::array<int32_t, 3> ids = {};
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string& token = i == 0 ? left : right;
      const auto found = parts.vocabulary.find(i == 2 ? left + right : token);
      if (found == parts.vocabulary.end())
        return bad_parts(fmt::format("merge {} ('{}' and '{}'): '{}' is not in the vocabulary", rank + 1,
                                     left, right, i == 2 ? left + right : token));
      ids[i] = static_cast<int32_t>(found->second);
    }
    // If a pair is there twice, the first rank counts, as in a dictionary that is filled from the end.
    made->merges_.try_emplace(pair_key(ids[0], ids[1]), Merge{static_cast<uint32_t>(rank), ids[2]});
  }
  HDT_RETURN_IF_ERROR(made->take_added_tokens(parts.added_tokens));
  made->patterns_ = std::move(parts.patterns);
  made->end_of_document_ = parts.end_of_document;
  made->space_before_ = parts.space_before;
  return std::unique_ptr<Tokenizer>(std::move(made));
}

Status BpeTokenizer::take_added_tokens(const std::vector<std::pair<std::string, int64_t>>& added) {
  added_ = added;
  added_begins_.assign(kBytes, false);
  for (const auto& [token, id] : added) {
    std::string& text = texts_[static_cast<size_t>(id)];
    if (!text.empty() && text != token)
      return bad_parts(fmt::format("number {} is both '{}' and the added token '{}'", id, text, token));
    text = token;
    added_begins_[static_cast<unsigned char>(token[0])] = true;
  }
  // At one place the longest one counts.
  std::ranges::stable_sort(added_,
                           [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  return Status::ok();
}

std::pair<size_t, const std::pair<std::string, int64_t>*> BpeTokenizer::next_added(std::string_view text,
                                                                                   size_t from) const {
  if (added_.empty()) return {std::string_view::npos, nullptr};
  for (size_t at = from; at < text.size(); ++at) {
    if (!added_begins_[static_cast<unsigned char>(text[at])]) continue;
    for (const auto& token : added_) {
      if (text.substr(at).starts_with(token.first)) return {at, &token};
    }
  }
  return {std::string_view::npos, nullptr};
}

Result<std::vector<int64_t>> BpeTokenizer::encode(std::string_view text) const {
  std::vector<int64_t> tokens;
  for (size_t from = 0; from < text.size();) {
    const auto [at, token] = next_added(text, from);
    const size_t end = std::min(at, text.size());
    if (end > from) HDT_RETURN_IF_ERROR(encode_plain(text.substr(from, end - from), tokens));
    from = end;
    if (token == nullptr) continue;
    tokens.push_back(token->second);
    from += token->first.size();
  }
  return tokens;
}

Status BpeTokenizer::encode_plain(std::string_view text, std::vector<int64_t>& tokens) const {
  if (!space_before_ || text.starts_with(' ')) return encode_words(text, 0, tokens);
  return encode_words(" " + std::string(text), 0, tokens);
}

// Each pattern cuts the pieces of the one before.
Status BpeTokenizer::encode_words(std::string_view text, size_t pattern, std::vector<int64_t>& tokens) const {
  if (pattern == patterns_.size()) {
    encode_word(text, tokens);
    return Status::ok();
  }
  Status inner;
  HDT_RETURN_IF_ERROR(patterns_[pattern].split(text, [&](std::string_view piece) {
    if (inner.is_ok()) inner = encode_words(piece, pattern + 1, tokens);
  }));
  return inner;
}

// The symbols are a list over indices; a symbol that was merged into the one before has number -1.
// Candidates are taken by rank, then by place. One that has changed since it was found is skipped.
void BpeTokenizer::encode_word(std::string_view word, std::vector<int64_t>& tokens) const {
  if (!words_.empty()) {
    if (const auto whole = words_.find(std::string(word)); whole != words_.end()) {
      tokens.push_back(whole->second);
      return;
    }
  }
  struct Symbol {
    int32_t token;
    ptrdiff_t before, next;  // -1: there is none
  };
  struct Candidate {
    uint32_t rank;
    ptrdiff_t place;
    int32_t left, right;
    bool operator<(const Candidate& other) const {  // the top of the queue is the lowest rank
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };
  const auto size = static_cast<ptrdiff_t>(word.size());
  std::vector<Symbol> symbols;
  for (ptrdiff_t i = 0; i < size; ++i)
    symbols.push_back({bytes_[static_cast<unsigned char>(word[i])], i - 1, i + 1 == size ? -1 : i + 1});
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](ptrdiff_t place) {
    if (place < 0 || symbols[place].next < 0) return;
    const int32_t left = symbols[place].token;
    const int32_t right = symbols[symbols[place].next].token;
    const auto found = merges_.find(pair_key(left, right));
    if (found != merges_.end()) candidates.push({found->second.rank, place, left, right});
  };
  for (ptrdiff_t i = 0; i < size; ++i) consider(i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbols[best.place];
    if (left.token != best.left || left.next < 0 || symbols[left.next].token != best.right) continue;
    Symbol& right = symbols[left.next];
    left.token = merges_.at(pair_key(best.left, best.right)).result;
    left.next = right.next;
    right.token = -1;
    if (left.next >= 0) symbols[left.next].before = best.place;
    consider(left.before);
    consider(best.place);
  }
  for (ptrdiff_t i = size == 0 ? -1 : 0; i >= 0; i = symbols[i].next) tokens.push_back(symbols[i].token);
}

std::string BpeTokenizer::decode(std::span<const int64_t> tokens) const {
  std::string text;
  for (const int64_t token : tokens) {
    if (token >= 0 && token < vocab_size() && token != end_of_document_)
      text += texts_[static_cast<size_t>(token)];
  }
  return text;
}

}  // namespace hdt::training
