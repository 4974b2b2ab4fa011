// write_example.cc: writes a checkpoint of three ranks for readers of other languages
// (other_readers_test.py).
//   write_example SAVE
// Element i of the tensor of layer l is l + i / 8, of its moments -l - i / 8 and (l + i / 8) / 1024.
#include <fmt/format.h>

#include <cstdio>

#include "training/checkpoint/checkpoint_folder.h"

namespace hdt::training {
namespace {

constexpr int64_t kStep = 100;
constexpr int kRanks = 3;
constexpr int kLayers = 4;

Status write_example(const std::string& save) {
  auto folder = CheckpointFolder::lock(save);
  if (!folder.is_ok()) return folder.status();
  std::vector<ShardSummary> summaries;
  std::vector<ExpectedTensor> expected;
  for (int rank = 0; rank < kRanks; ++rank) {
    ShardTensors tensors;
    std::vector<std::vector<float>> values;
    values.reserve(3 * kLayers);
    for (int layer = rank; layer < kLayers; layer += kRanks) {
      const Shape shape = {static_cast<uint64_t>(layer) + 1, 5};
      const std::string name = fmt::format("model.layers.{}.weight", layer);
      std::vector<float> parameter;
      for (uint64_t i = 0; i < shape[0] * shape[1]; ++i) {
        parameter.push_back(static_cast<float>(layer) + static_cast<float>(i) / 8);
      }
      std::vector<float> first = parameter;
      std::vector<float> second = parameter;
      for (float& value : first) value = -value;
      for (float& value : second) value /= 1024;
      for (const auto& [suffix, of] : {std::pair("", &parameter), std::pair(kFirstMomentSuffix, &first),
                                       std::pair(kSecondMomentSuffix, &second)}) {
        const bool moment = of != &parameter;
        values.push_back(*of);
        (moment ? tensors.optimizer : tensors.model)
            .push_back(typed_view(name + suffix, shape, values.back()));
        expected.push_back(
            {name + suffix, values.back().size(), moment ? ShardKind::kOptimizer : ShardKind::kModel});
      }
    }
    auto summary = write_shards(save, kStep, rank, tensors);
    if (!summary.is_ok()) return summary.status();
    summaries.push_back(summary.take());
  }
  const TrainingState state{kStep, 7, 1200, {{"hidden_size", "5"}}};
  return folder.value()->publish(state, summaries, expected).status();
}

}  // namespace
}  // namespace hdt::training

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: write_example SAVE\n");
    return 2;
  }
  const hdt::Status status = hdt::training::write_example(arguments[1]);
  if (!status.is_ok()) std::fprintf(stderr, "write_example: %s\n", status.to_string().c_str());
  return status.is_ok() ? 0 : 1;
}
