// generator.h: writes text with the model, through all stages of a replica. The prompt is computed at once,
// then one token at a time, as the stages keep keys and values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "training/engine/compute.h"
#include "training/engine/layout.h"
#include "training/engine/messenger.h"
#include "training/engine/model_chunks.h"
#include "training/engine/sampling.h"

namespace hdt::training {

struct GenerationOptions {
  int tokens = 0;  // to add to the prompt
  Sampling sampling = {};
  uint64_t seed = 0;  // of the draws
};

// Writes options.tokens tokens after `prompt`, which must not be empty, and returns them without the
// prompt. The model sees the last sequence_length() tokens: a text that is longer is as if its beginning had
// never been there, and each further token costs a forward pass over the whole window. All stages of the
// replica must call it with the same arguments and get the same result. Fails with what the messenger
// reports.
Result<std::vector<int64_t>> generate(const Layout& layout, const ChunksOf<TextCompute>& chunks,
                                      Messenger& messenger, std::span<const int64_t> prompt,
                                      const GenerationOptions& options);

}  // namespace hdt::training
