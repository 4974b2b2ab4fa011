// token_source.h: a finite stream of tokens with random access. What the sampler and the statistics read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hdt::training {

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual uint64_t token_count() const = 0;
  // Fills `out` with the tokens from `first` on. first + out.size() <= token_count() is the caller's duty.
  // Safe to call from several threads.
  virtual void read_tokens(uint64_t first, std::span<int64_t> out) const = 0;
};

// Tokens held in memory.
class MemoryTokens final : public TokenSource {
 public:
  explicit MemoryTokens(std::vector<int64_t> tokens);
  uint64_t token_count() const override { return tokens_.size(); }
  void read_tokens(uint64_t first, std::span<int64_t> out) const override;

 private:
  std::vector<int64_t> tokens_;
};

}  // namespace hdt::training
