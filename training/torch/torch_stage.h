// torch_stage.h: a pipeline stage of a model on libtorch, in fp32 or bf16 on the CPU. Free of torch
// headers, so only this folder needs them.
#pragma once

#include <memory>

#include "training/engine/compute.h"
#include "training/torch/model_shape.h"

namespace hdt::training {

// The stage that holds `units`. To be used by one thread (compute.h). Throws what torch throws (c10::Error).
// Its first `recomputed_layers` layers (all of them, if it has fewer) keep only their input from forward to
// backward, and backward runs their forward again. Results are the same bits.
//
// `type`: of parameters and activations. In bf16, norms and the loss are computed in fp32. Where gradients
// are bound in fp32, each micro-batch's are computed in bf16, in memory of the stage, and added.
std::unique_ptr<TextCompute> make_torch_stage(const ModelShape& shape, UnitRange units,
                                              int recomputed_layers = 0,
                                              NumberType type = NumberType::kFloat32);

// The number of threads that a torch operation may use in this process.
void set_torch_threads(int threads);

}  // namespace hdt::training
