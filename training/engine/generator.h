// generator.h: writes text with the model, through all stages of a replica. Each new token costs a whole
// forward pass, as no keys and values are kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "training/engine/compute.h"
#include "training/engine/layout.h"
#include "training/engine/messenger.h"
#include "training/engine/model_chunks.h"

namespace hdt::training {

struct GenerationOptions {
  int tokens = 0;            // to add to the prompt
  double temperature = 1.0;  // 0: always the likeliest token
  uint64_t seed = 0;         // of the draws
};

// Writes options.tokens tokens after `prompt`, which must not be empty, and returns them without the
// prompt. The model sees the last sequence_length() tokens. All stages of the replica must call it with
// the same arguments and get the same result. Fails with what the messenger reports.
Result<std::vector<int64_t>> generate(const Layout& layout, const ChunksOf<TextCompute>& chunks,
                                      Messenger& messenger, std::span<const int64_t> prompt,
                                      const GenerationOptions& options);

// Draws a token from softmax(logits / temperature). `uniform` is in [0, 1); the same value gives the
// same token.
int64_t sample_token(std::span<const float> logits, double temperature, double uniform);

}  // namespace hdt::training
