// examples.h: tensors and checkpoints for tests, whose numbers are functions of step and name, so that a
// reader knows what it must find.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/whole_number.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/checkpoint_folder.h"

namespace hdt::training {

// HDT_TEST_SEED, else another one each time; printed.
inline uint64_t seed_of_test() {
  const char* const given = std::getenv("HDT_TEST_SEED");
  const uint64_t seed = given == nullptr ? std::random_device()() : whole_number<uint64_t>(given).value_or(0);
  std::cout << "seed " << seed << " (HDT_TEST_SEED)\n";
  return seed;
}

struct ExampleTensor {
  std::string name;
  Shape shape;
  ShardKind kind = ShardKind::kModel;
  std::vector<float> values;
};

// A model of `layers` tensors and their moments, as after `step`.
inline std::vector<ExampleTensor> example_tensors(int64_t step, int layers = 5) {
  std::vector<ExampleTensor> all;
  for (int layer = 0; layer < layers; ++layer) {
    const std::string name = "model.layers." + std::to_string(layer) + ".weight";
    const Shape shape = {static_cast<uint64_t>(layer) + 2, 7};
    for (const char* suffix : {"", kFirstMomentSuffix, kSecondMomentSuffix}) {
      ExampleTensor tensor{name + suffix, shape, ShardKind::kModel, {}};
      if (*suffix != '\0') tensor.kind = ShardKind::kOptimizer;
      std::minstd_rand random(static_cast<uint32_t>(std::hash<std::string>()(tensor.name) + step));
      tensor.values.resize(shape[0] * shape[1]);
      for (float& value : tensor.values) value = static_cast<float>(random()) / 1e9F;
      all.push_back(std::move(tensor));
    }
  }
  return all;
}

inline std::vector<ExpectedTensor> expected_of(const std::vector<ExampleTensor>& tensors) {
  std::vector<ExpectedTensor> all;
  for (const auto& tensor : tensors) all.push_back({tensor.name, tensor.values.size(), tensor.kind});
  return all;
}

// The tensors of one of `ranks` ranks: each tensor goes to one of them, in turn.
inline ShardTensors part_of(const std::vector<ExampleTensor>& tensors, int rank, int ranks) {
  ShardTensors part;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (static_cast<int>(i / 3 % ranks) != rank) continue;  // three: a tensor with its moments
    auto& list = tensors[i].kind == ShardKind::kModel ? part.model : part.optimizer;
    list.push_back(typed_view(tensors[i].name, tensors[i].shape, tensors[i].values));
  }
  return part;
}

inline std::vector<ShardSummary> write_all_ranks(const std::string& save, int64_t step, int ranks) {
  const auto tensors = example_tensors(step);
  std::vector<ShardSummary> summaries;
  for (int rank = 0; rank < ranks; ++rank) {
    auto summary = write_shards(save, step, rank, part_of(tensors, rank, ranks));
    EXPECT_TRUE(summary.is_ok()) << summary.status().to_string();
    if (!summary.is_ok()) return {};
    // As a run gathers them.
    auto gathered = parse_shard_summary(to_text(summary.value()));
    EXPECT_TRUE(gathered.is_ok()) << gathered.status().to_string();
    if (gathered.is_ok()) summaries.push_back(gathered.take());
  }
  return summaries;
}

inline TrainingState example_state(int64_t step) {
  return {step,
          18'446'744'073'709'551'615U,
          step * 12,
          {{"hidden_size", "128"}, {"data", "kjv, 1 MB"}},
          {{"lr", "0.001"}}};
}

inline Result<PublishedCheckpoint> save_example(CheckpointFolder& folder, int64_t step, int ranks = 2,
                                                int keep_latest = 0) {
  const auto summaries = write_all_ranks(folder.save(), step, ranks);
  return folder.publish(example_state(step), summaries, expected_of(example_tensors(step)), {keep_latest});
}

// Whether the checkpoint holds what save_example() has written for its step, to the bit.
inline ::testing::AssertionResult holds_example(Checkpoint& checkpoint) {
  const TrainingState& state = checkpoint.state();
  const TrainingState expected = example_state(state.step);
  if (state.seed != expected.seed || state.consumed_samples != expected.consumed_samples ||
      state.fingerprint != expected.fingerprint) {
    return ::testing::AssertionFailure() << "another state";
  }
  const auto tensors = example_tensors(state.step);
  if (checkpoint.tensors().size() != tensors.size())
    return ::testing::AssertionFailure() << "not all tensors";
  for (const ExampleTensor& tensor : tensors) {
    std::vector<float> read(tensor.values.size());
    const Status status = checkpoint.read(tensor.name, 0, read);
    if (!status.is_ok()) return ::testing::AssertionFailure() << status.to_string();
    if (read != tensor.values) return ::testing::AssertionFailure() << tensor.name << " has other numbers";
  }
  return ::testing::AssertionSuccess();
}

}  // namespace hdt::training
