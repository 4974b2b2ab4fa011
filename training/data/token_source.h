// token_source.h: a finite stream of tokens with random access. The sampler and the statistics read from it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace hdt::training {

// Does not change while it is used.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual uint64_t token_count() const = 0;
  // Fills `out` with the tokens from `first` on. The caller must ensure first + out.size() <=
  // token_count(). Safe to call from several threads.
  virtual void read_tokens(uint64_t first, std::span<int64_t> out) const = 0;
};

// Consecutive tokens of another stream, as a stream of their own.
class TokenRange final : public TokenSource {
 public:
  // Tokens first .. end - 1 of `source`; first <= end <= source->token_count().
  TokenRange(std::shared_ptr<const TokenSource> source, uint64_t first, uint64_t end);
  uint64_t token_count() const override { return count_; }
  void read_tokens(uint64_t first, std::span<int64_t> out) const override;

 private:
  std::shared_ptr<const TokenSource> source_;
  uint64_t first_;
  uint64_t count_;
};

// Tokens that are held in memory, for tests and small data.
class MemoryTokens final : public TokenSource {
 public:
  explicit MemoryTokens(std::vector<int64_t> tokens);
  uint64_t token_count() const override { return tokens_.size(); }
  void read_tokens(uint64_t first, std::span<int64_t> out) const override;

 private:
  std::vector<int64_t> tokens_;
};

}  // namespace hdt::training
