// data_split.h: divides data into what is trained on, what validates, and what tests (Megatron's --split).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hdt::training {

// The parts in the order of the flag's weights, which is that of the data.
enum class DataPart { kTraining, kValidation, kTest };
inline constexpr size_t kDataParts = 3;
// "training", "validation" or "test".
const char* data_part_name(DataPart part);

// How large the parts are to each other. The default puts everything into training.
struct DataSplit {
  std::array<double, kDataParts> weights = {1, 0, 0};

  double weight(DataPart part) const { return weights[static_cast<size_t>(part)]; }
};

// One to three weights, separated by commas, such as "969,30,1"; those that are missing are 0. They need not
// sum to anything. kInvalidArgument: a weight is no number of 0 or more, or that of training is 0.
Result<DataSplit> parse_data_split(std::string_view text);

// Where the parts of `elements` elements begin; the last number is their end. Megatron's arithmetic: each
// border is the sum of the shares before it times `elements`, rounded, half to even.
std::array<uint64_t, kDataParts + 1> split_borders(const DataSplit& split, uint64_t elements);

}  // namespace hdt::training
