// emulated_compute.h: a device that is not there: a stage whose computation is a wait of the given length.
//
// Memory and messages are those of a real stage, so a run shows how communication and schedule behave on a
// cluster of devices that nobody has here. Ranks that wait take no processor, so that many of them fit on few
// cores. Parameters, activations and the loss are zeros: nothing is learnt.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "training/engine/compute.h"

namespace hdt::training {

// One unit on the emulated device.
struct EmulatedUnit {
  // Seconds of one micro-batch.
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
  size_t parameters = 0;       // elements
  size_t output_elements = 0;  // that the next unit gets for one sample
};

// A stage with these units, the first of which is `first`. A sample has one token. A backward in one part
// takes the time of both gradients, and a unit is reported when its own have been waited for. `before`: the
// unit before the first one, which the size of the input follows from; not used where `first` is 0.
//
// `tied_parameters`: the elements of a matrix that the embedding and the head share (kTiedUnit). A stage that
// has one of these has it, and their own `parameters` are without it. 0: nothing is tied.
//
// `type`: of parameters and activations, and so of messages.
//
// A wait ends when the device would be done, or later if the machine has no core for the rank at that moment.
std::unique_ptr<StageCompute> make_emulated_compute(int first, std::vector<EmulatedUnit> units,
                                                    const EmulatedUnit& before, size_t tied_parameters = 0,
                                                    NumberType type = NumberType::kFloat32);

}  // namespace hdt::training
