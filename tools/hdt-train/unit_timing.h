// unit_timing.h: what one unit of the model takes on this machine: forward, backward, optimizer, kept
// activations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "training/engine/layout.h"
#include "training/torch/model_shape.h"

namespace hdt::tools {

// Of one micro-batch. Seconds of each repetition, so that rounds at different times can be put together.
struct UnitTiming {
  std::vector<double> forward;
  std::vector<double> backward;  // both gradients: autograd computes them together
  int64_t activation_bytes = 0;
};

// Times a stage that holds `units`, on a device that is `slow_down` times slower (1: as it is), divides by
// their number, and adds what it measured to `timing`.
void time_units(const training::ModelShape& shape, training::UnitRange units, int micro_batch_size,
                double slow_down, UnitTiming& timing);

size_t unit_elements(const training::ModelShape& shape, int unit);

// What the trainer does once a step with a unit's gradients, besides reducing them: zeroing, norm, AdamW. Not
// slowed down by an emulated device.
double time_update(size_t elements);

}  // namespace hdt::tools
