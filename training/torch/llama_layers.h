// llama_layers.h: the computation of each kind of unit (embedding, transformer layer, head) on torch
// tensors. The functions are pure and build autograd graphs if gradients are on.
//
// The model is LLaMA (Touvron et al. 2023: "LLaMA: Open and efficient foundation language models"):
// RMSNorm before each block, rotary position embeddings, causal attention, SwiGLU, no biases, and an
// output head separate from the embedding. In shapes below B is the number of samples and T the number
// of tokens of each.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "training/engine/compute.h"
#include "training/torch/linear.h"
#include "training/torch/model_shape.h"

namespace hdt::training {

// One parameter tensor of a unit, as the computation has it: query, key and value are one matrix, and so are
// gate and up; tensor_names.h has their parts.
struct ParameterShape {
  std::vector<int64_t> sizes;
  double deviation = 0;  // start values: normal with this deviation; 0: ones
};

// The parameters of a unit, in the order in which they lie in memory. `unit` counts as in the engine
// (training/engine/layout.h).
std::vector<ParameterShape> unit_parameters(const ModelShape& shape, int unit);

// Tables that depend on positions only, computed once for each stage: cosine and sine of every position and
// frequency, and the mask of the future, for up to sequence_length tokens.
struct PositionTables {
  explicit PositionTables(const ModelShape& shape);
  at::Tensor cosine;  // [T, 1, 1, head_size / 2]
  at::Tensor sine;
  at::Tensor future;  // [T, T], true where the key lies after the query
};

// Tokens [B, T] to [B, T, hidden].
at::Tensor embedding_forward(const std::vector<at::Tensor>& parameters, const at::Tensor& tokens);
// [B, T, hidden] to [B, T, hidden]. T may be below sequence_length. The gradients of its matrices go to
// `gradients` (linear.h).
at::Tensor layer_forward(const ModelShape& shape, const PositionTables& tables,
                         const std::vector<at::Tensor>& parameters, WeightGradients& gradients,
                         const at::Tensor& input);
// [B, T, hidden] to logits [B, T, vocab]. As above.
at::Tensor head_forward(const ModelShape& shape, const std::vector<at::Tensor>& parameters,
                        WeightGradients& gradients, const at::Tensor& input);

}  // namespace hdt::training
