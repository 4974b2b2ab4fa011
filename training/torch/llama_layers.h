// llama_layers.h: the computation of each kind of unit (embedding, transformer layer, head) on torch tensors.
//
// LLaMA (Touvron et al., 2023): RMSNorm before each block, rotary position embeddings, causal attention,
// SwiGLU, no biases, separate embedding and output head.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "training/engine/compute.h"
#include "training/torch/model_shape.h"

namespace hdt::training {

struct ParameterShape {
  std::vector<int64_t> sizes;
  bool decayed = true;
  double deviation = 0;  // start values: normal with this deviation; 0: ones
};

// The parameters of a unit, in the order in which they lie in memory; decayed ones first.
std::vector<ParameterShape> unit_parameters(const ModelShape& shape, int unit);

// cos and sin of every position and frequency, and the mask of the future, for up to `sequence_length`
// tokens.
struct PositionTables {
  explicit PositionTables(const ModelShape& shape);
  at::Tensor cosine;  // [T, 1, 1, head_size / 2]
  at::Tensor sine;
  at::Tensor future;  // [T, T], true where the key lies after the query
};

// tokens [B, T] to [B, T, hidden].
at::Tensor embedding_forward(const std::vector<at::Tensor>& parameters, const at::Tensor& tokens);
// [B, T, hidden] to [B, T, hidden].
at::Tensor layer_forward(const ModelShape& shape, const PositionTables& tables,
                         const std::vector<at::Tensor>& parameters, const at::Tensor& input);
// [B, T, hidden] to logits [B, T, vocab].
at::Tensor head_forward(const ModelShape& shape, const std::vector<at::Tensor>& parameters,
                        const at::Tensor& input);

}  // namespace hdt::training
