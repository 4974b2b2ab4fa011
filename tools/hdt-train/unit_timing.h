// unit_timing.h: measures what one unit of the model takes on this machine: forward, backward,
// optimizer, and the activations that it keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "training/engine/layout.h"
#include "training/torch/model_shape.h"

namespace hdt::tools {

// One unit, one micro-batch. All repetitions are kept, so that rounds at different times can be put
// together.
struct UnitTiming {
  // Seconds.
  std::vector<double> forward;
  // Seconds of both gradients, which autograd computes together.
  std::vector<double> backward;
  // Bytes that the allocator holds more after a forward; at least 1.
  int64_t activation_bytes = 0;
};

// Times a stage that holds `units` on a device that is `slow_down` times slower (1: as it is), divides
// by the number of units, and appends the results to `timing`.
void time_units(const training::ModelShape& shape, training::UnitRange units, int micro_batch_size,
                double slow_down, UnitTiming& timing);

// The number of parameters of a unit.
size_t unit_elements(const training::ModelShape& shape, int unit);

// Seconds of what the trainer does once a step with so many parameters besides reducing their gradients:
// zeroing, norm, AdamW. An emulated device does not slow it down.
double time_update(size_t elements);

}  // namespace hdt::tools
