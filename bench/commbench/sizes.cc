// sizes.cc: parses and generates message sizes. Comparisons are written so that no product or sum
// overflows.
#include "bench/commbench/sizes.h"

#include <charconv>

namespace hdt::bench {

Result<size_t> parse_size(const std::string& text) {
  const Status wrong(
      Code::kInvalidArgument,
      "'" + text + "' is not a size; expected a whole number up to 1024G with an optional suffix K, M or G");
  size_t number = 0;
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc()) return wrong;
  unsigned shift = 0;
  if (rest != end) {
    switch (*rest++) {
      case 'k':
      case 'K':
        shift = 10;
        break;
      case 'm':
      case 'M':
        shift = 20;
        break;
      case 'g':
      case 'G':
        shift = 30;
        break;
      default:
        return wrong;
    }
    if (rest != end) return wrong;
  }
  // Compared before shifting, which could overflow.
  if (number > (kMaxBytes >> shift)) return wrong;
  return number << shift;
}

std::string size_text(size_t bytes) {
  constexpr const char* kSuffixes[] = {"", "K", "M", "G"};
  int suffix = 0;
  while (suffix < 3 && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++suffix;
  }
  return std::to_string(bytes) + kSuffixes[suffix];
}

Result<std::vector<size_t>> sweep_sizes(size_t min, size_t max, size_t step, size_t factor) {
  if (min > max) return Status(Code::kInvalidArgument, "-b: expected at most -e (" + size_text(max) + ")");
  std::vector<size_t> sizes;
  for (size_t size = min; size <= max;) {
    if (sizes.size() == kMaxSweepSteps) {
      return Status(Code::kInvalidArgument,
                    "-i: more than 100000 sizes; expected a greater step or a factor -f");
    }
    sizes.push_back(size);
    if (size == max) break;
    if (factor > 1) {
      // 0 times any factor is 0.
      if (size == 0)
        return Status(Code::kInvalidArgument, "-b: expected at least 1 where sizes are multiplied (-f)");
      if (size > max / factor) break;
      size *= factor;
    } else {
      if (step == 0) return Status(Code::kInvalidArgument, "-i: expected a step above 0");
      if (step > max - size) break;
      size += step;
    }
  }
  return sizes;
}

}  // namespace hdt::bench
