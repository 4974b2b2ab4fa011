// compute.cc: the two parts of a backward, of a compute that has none.
#include "training/engine/compute.h"

#include <stdexcept>

namespace hdt::training {

// PipelineRunner::create() refuses the schedules that would call these.
void StageCompute::backward_input(int /*slot*/, ConstTypedSpan /*output_gradient*/,
                                  TypedSpan /*input_gradient*/) {
  throw std::logic_error("backward_input() without has_split_backward()");
}

void StageCompute::backward_weights(int /*slot*/, const UnitDone& /*unit_done*/) {
  throw std::logic_error("backward_weights() without has_split_backward()");
}

}  // namespace hdt::training
