// generator.h: writes text with the model, through all stages of a replica.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "training/engine/compute.h"
#include "training/engine/layout.h"
#include "training/engine/messenger.h"

namespace hdt::training {

struct GenerationOptions {
  int tokens = 0;            // to add to the prompt
  double temperature = 1.0;  // 0: always the likeliest token
  uint64_t seed = 0;
};

// All stages of the replica call it with the same arguments and get the same tokens: those after `prompt`
// (not empty). The model sees the last sequence_length tokens.
Result<std::vector<int64_t>> generate(const Layout& layout, StageCompute& compute, Messenger& messenger,
                                      std::span<const int64_t> prompt, const GenerationOptions& options);

// Draws from softmax(logits / temperature); `uniform` is in [0, 1).
int64_t sample_token(std::span<const float> logits, double temperature, double uniform);

}  // namespace hdt::training
