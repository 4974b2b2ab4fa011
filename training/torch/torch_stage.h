// torch_stage.h: a pipeline stage of a model on libtorch, in fp32, bf16, fp16 or fp64 on the CPU. Free of
// torch headers, so only this folder needs them.
#pragma once

#include <cstddef>
#include <memory>

#include "training/engine/compute.h"
#include "training/torch/dropout_rates.h"
#include "training/torch/model_shape.h"

namespace hdt::training {

struct TorchStageOptions {
  // The first layers of the stage (all of them, if it has fewer) keep only their input from forward to
  // backward, and backward runs their forward again. Results are the same bits.
  int recomputed_layers = 0;
  // In the first of its layers (all, if it has fewer), attention keeps only queries, keys and values for the
  // backward, which computes scores and probabilities again. The same bits, too.
  int recomputed_attentions = 0;
  // The type of parameters and activations. In fp16 a unit computes in fp32 with copies, which live as long
  // as its graphs, and rounds what it hands on and its gradients. In fp64 everything is computed in fp64. In
  // bf16, norms and the loss are computed in fp32. Where gradients are bound in fp32, each micro-batch's are
  // computed in bf16, in memory of the stage, and added.
  NumberType type = NumberType::kFloat32;
  // In training; an evaluation drops nothing.
  DropoutRates dropout = {};
};

// The stage that holds `units`. To be used by one thread (compute.h). Throws what torch throws (c10::Error).
std::unique_ptr<TextCompute> make_torch_stage(const ModelShape& shape, UnitRange units,
                                              const TorchStageOptions& options = {});

// The bytes of the keys and values that infer() keeps of each layer of a stage, from its first call on until
// the stage ends: those of a whole text, however long it is. In the type that computes, which for fp16 is
// fp32.
size_t key_value_bytes(const ModelShape& shape, NumberType type);

// The number of threads that a torch operation may use in this process.
void set_torch_threads(int threads);

}  // namespace hdt::training
