// unit_timing.h: measures what one unit of the model takes on this machine: forward, backward,
// optimizer, and the activations that it keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "training/engine/layout.h"
#include "training/torch/model_shape.h"

namespace hdt::tools {

// One unit, one micro-batch, measured in rounds at different times. Each round gives the mean of its
// repetitions and not their median: a step is a sum of many such pieces, and where some of them take longer
// than most, so does the step.
struct UnitTiming {
  // Seconds, by round.
  std::vector<double> forward;
  // Seconds of both gradients, which autograd computes together.
  std::vector<double> backward;
  // Bytes that the allocator holds more after a forward; at least 1. Without copies of parameters, which are
  // there once for all micro-batches (BytesOfParameter).
  int64_t activation_bytes = 0;
};

// Times a stage that holds `units` with numbers of `types`, on a device that is `slow_down` times slower (1:
// as it is), divides by the number of units, and appends a round to `timing`. `attention_again`: layers
// compute their attention again for the backward.
void time_units(const training::ModelShape& shape, training::UnitRange units,
                const training::NumberTypes& types, int micro_batch_size, double slow_down,
                bool attention_again, UnitTiming& timing);

// The number of parameters that a unit computes with. A tied matrix is among those of both of its uses.
size_t unit_elements(const training::ModelShape& shape, int unit);

// Seconds of what the trainer does once a step with so many parameters besides reducing their gradients:
// zeroing, norm, AdamW, and conversions between types. An emulated device does not slow it down.
double time_update(size_t elements, const training::NumberTypes& types);

}  // namespace hdt::tools
