// token_source.cc: tokens from memory.
#include "training/data/token_source.h"

#include <algorithm>

namespace hdt::training {

MemoryTokens::MemoryTokens(std::vector<int64_t> tokens) : tokens_(std::move(tokens)) {}

void MemoryTokens::read_tokens(uint64_t first, std::span<int64_t> out) const {
  std::copy_n(tokens_.begin() + static_cast<ptrdiff_t>(first), out.size(), out.begin());
}

}  // namespace hdt::training
