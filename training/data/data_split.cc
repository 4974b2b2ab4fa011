// data_split.cc: reads the weights and places the borders. They follow from the weights and the number of
// elements alone, so all ranks of all layouts have the same ones.
#include "training/data/data_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace hdt::training {

const char* data_part_name(DataPart part) {
  switch (part) {
    case DataPart::kTraining:
      return "training";
    case DataPart::kValidation:
      return "validation";
    case DataPart::kTest:
      return "test";
  }
  return "unknown";
}

Result<DataSplit> parse_data_split(std::string_view text) {
  constexpr double kGreatest = 1e9;  // keeps sums exact enough
  DataSplit split;
  split.weights = {};
  size_t count = 0;
  for (std::string_view rest = text;;) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view word = rest.substr(0, comma);
    double weight = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), weight);
    // The comparison refuses nan, too.
    if (error != std::errc() || end != word.data() + word.size() || !(weight >= 0 && weight <= kGreatest)) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("'{}' in '{}' given, expected weights of 0 or more, such as 969,30,1", word, text));
    }
    if (count == kDataParts) {
      return Status(Code::kInvalidArgument,
                    fmt::format("'{}' given, expected at most {} weights: training, validation, test", text,
                                kDataParts));
    }
    split.weights[count++] = weight;
    if (comma == rest.size()) break;
    rest.remove_prefix(comma + 1);
  }
  if (split.weight(DataPart::kTraining) == 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' given, expected a first weight, that of training, above 0", text));
  }
  return split;
}

std::array<uint64_t, kDataParts + 1> split_borders(const DataSplit& split, uint64_t elements) {
  double sum = 0;
  size_t last = 0;  // the last part that has a weight: it gets all that rounding of shares leaves
  for (size_t part = 0; part < kDataParts; ++part) {
    sum += split.weights[part];
    if (split.weights[part] > 0) last = part;
  }
  std::array<uint64_t, kDataParts + 1> borders = {};
  double share = 0;
  for (size_t part = 0; part < kDataParts; ++part) {
    share += split.weights[part] / sum;
    // nearbyint() rounds half to even, as Python's round() does.
    const double border = std::nearbyint(share * static_cast<double>(elements));
    borders[part + 1] = part >= last ? elements : std::min(static_cast<uint64_t>(border), elements);
  }
  return borders;
}

}  // namespace hdt::training
