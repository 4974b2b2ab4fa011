// torch_stage.h: a pipeline stage of a LLaMA-style model on libtorch, fp32. Free of torch headers.
#pragma once

#include <memory>

#include "training/engine/compute.h"
#include "training/torch/model_shape.h"

namespace hdt::training {

// The stage that holds `units`.
std::unique_ptr<StageCompute> make_torch_stage(const ModelShape& shape, UnitRange units);

// Threads that a torch operation may use in this process.
void set_torch_threads(int threads);

}  // namespace hdt::training
