// small_stage.h: a torch stage of no size on memory of its own, for the tests of the torch model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tests/training/engine/training_run.h"
#include "training/torch/torch_stage.h"

namespace hdt::training::testing {

inline ModelShape small_shape() {
  ModelShape shape;
  shape.num_layers = 4;
  shape.hidden_size = 32;
  shape.num_attention_heads = 4;
  shape.ffn_hidden_size = 64;
  shape.sequence_length = 16;
  shape.vocab_size = 29;
  return shape;
}

// A stage on memory of its own.
struct Stage {
  Stage(const ModelShape& shape, UnitRange units, uint64_t seed, const TorchStageOptions& options = {})
      : compute(make_torch_stage(shape, units, options)) {
    for (int unit = units.first; unit < units.end; ++unit) {
      parameters.emplace_back(elements_of(compute->tensors(unit)));
      gradients.emplace_back(elements_of(compute->tensors(unit)));
    }
    for (int unit = units.first; unit < units.end; ++unit) {
      compute->bind(unit, parameters[unit - units.first], gradients[unit - units.first]);
      compute->initialize(unit, seed);
    }
  }
  std::unique_ptr<TextCompute> compute;
  std::vector<std::vector<float>> parameters, gradients;
};

inline std::vector<int64_t> samples(const ModelShape& shape, int count) {
  std::vector<int64_t> tokens(count * (shape.sequence_length + 1));
  for (int i = 0; i < count; ++i) {
    synthetic_sample(static_cast<int>(shape.vocab_size), 0, i,
                     std::span(tokens).subspan(i * (shape.sequence_length + 1), shape.sequence_length + 1));
  }
  return tokens;
}

}  // namespace hdt::training::testing
