// sizes.h: message sizes as nccl-tests writes them ("8", "64M"), and the sweep from the minimum to the
// maximum.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"

namespace hdt::bench {

// 1 TiB, and the maximum number of sizes in a sweep.
inline constexpr size_t kMaxBytes = size_t{1} << 40;
inline constexpr size_t kMaxSweepSteps = 100000;

// A whole number with an optional suffix K, M or G (powers of 1024), at most kMaxBytes. kInvalidArgument
// otherwise.
Result<size_t> parse_size(const std::string& text);

// "64M", "1K", "12": the shortest exact form that parse_size() reads back.
std::string size_text(size_t bytes);

// Sizes from `min` to `max`: multiplied by `factor` if that is above 1, otherwise `step` bytes apart.
// kInvalidArgument, with the flag at fault, if there is no such sweep.
Result<std::vector<size_t>> sweep_sizes(size_t min, size_t max, size_t step, size_t factor);

}  // namespace hdt::bench
