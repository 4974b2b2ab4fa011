// token_source.cc: tokens from memory, and a part of another stream.
#include "training/data/token_source.h"

#include <algorithm>
#include <utility>

namespace hdt::training {

TokenRange::TokenRange(std::shared_ptr<const TokenSource> source, uint64_t first, uint64_t end)
    : source_(std::move(source)), first_(first), count_(end - first) {}

void TokenRange::read_tokens(uint64_t first, std::span<int64_t> out) const {
  source_->read_tokens(first_ + first, out);
}

MemoryTokens::MemoryTokens(std::vector<int64_t> tokens) : tokens_(std::move(tokens)) {}

void MemoryTokens::read_tokens(uint64_t first, std::span<int64_t> out) const {
  std::copy_n(tokens_.begin() + static_cast<ptrdiff_t>(first), out.size(), out.begin());
}

}  // namespace hdt::training
