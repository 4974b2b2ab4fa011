// sample_reader.h: how stages get the tokens of a micro-batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace hdt::training {

// Fills `tokens` (sequence_length + 1 of them) with sample `index` of the global batch under way.
using SampleReader = std::function<void(int64_t index, std::span<int64_t> tokens)>;

// Reads `count` samples of so many tokens each, from number `first` on, one after the other into `samples`.
inline void read_samples(const SampleReader& reader, int64_t first, int count, int tokens,
                         std::vector<int64_t>& samples) {
  const auto length = static_cast<size_t>(tokens);
  samples.resize(length * static_cast<size_t>(count));
  for (int i = 0; i < count; ++i)
    reader(first + i, std::span(samples).subspan(static_cast<size_t>(i) * length, length));
}

}  // namespace hdt::training
