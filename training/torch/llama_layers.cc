// llama_layers.cc: the model's mathematics. `parameters` are in the order of unit_parameters().
#include "training/torch/llama_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>

#include <cmath>
#include <limits>

namespace hdt::training {
namespace {

// The deviation of start values, as in GPT-2 (Radford et al. 2019: "Language models are unsupervised
// multitask learners").
constexpr double kDeviation = 0.02;

// Zhang and Sennrich 2019: "Root mean square layer normalization". The norm is over the last dimension.
at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon) {
  return input * at::rsqrt(input.square().mean(-1, true) + epsilon) * weight;
}

// Rotary embeddings (Su et al. 2021: "RoFormer"): rotates the pairs (i, i + head_size / 2) of the last
// dimension by the angle of their position. `input` is [B, T, 2, heads, head_size], where the 2 are
// query and key.
at::Tensor rotate(const at::Tensor& input, const at::Tensor& cosine, const at::Tensor& sine) {
  const std::vector<at::Tensor> halves = input.chunk(2, -1);
  return at::cat({halves[0] * cosine - halves[1] * sine, halves[1] * cosine + halves[0] * sine}, -1);
}

// Causal attention. Query, key and value come from one matrix; query and key are rotated in one pass.
// The scale 1 / sqrt(head_size) is applied to the query, which is smaller than the scores. Masked scores
// become 0 in the softmax.
at::Tensor attention(const ModelShape& shape, const PositionTables& tables, const at::Tensor& qkv_weight,
                     const at::Tensor& out_weight, WeightGradients& gradients, const at::Tensor& input) {
  const int64_t batch = input.size(0);
  const int64_t length = input.size(1);
  const at::Tensor qkv = linear(input, qkv_weight, gradients)
                             .view({batch, length, 3, shape.num_attention_heads, shape.head_size()});
  const at::Tensor qk =
      rotate(qkv.narrow(2, 0, 2), tables.cosine.narrow(0, 0, length), tables.sine.narrow(0, 0, length));
  const at::Tensor q = qk.select(2, 0).transpose(1, 2) / std::sqrt(static_cast<double>(shape.head_size()));
  const at::Tensor k = qk.select(2, 1).transpose(1, 2);
  const at::Tensor v = qkv.select(2, 2).transpose(1, 2);
  const at::Tensor future = tables.future.narrow(0, 0, length).narrow(1, 0, length);
  const at::Tensor scores =
      at::matmul(q, k.transpose(-2, -1)).masked_fill(future, -std::numeric_limits<double>::infinity());
  const at::Tensor mixed = at::matmul(scores.softmax(-1), v);
  return linear(mixed.transpose(1, 2).reshape({batch, length, shape.hidden_size}), out_weight, gradients);
}

}  // namespace

std::vector<ParameterShape> unit_parameters(const ModelShape& shape, int unit) {
  const int64_t hidden = shape.hidden_size;
  if (unit == 0) return {{{shape.vocab_size, hidden}, kDeviation}};
  if (unit == shape.num_layers + 1) return {{{shape.vocab_size, hidden}, kDeviation}, {{hidden}, 0}};
  // The outputs that are added to the residual stream start smaller the deeper the model is, so that its
  // variance does not grow with the depth (Radford et al. 2019).
  const double residual = kDeviation / std::sqrt(2.0 * shape.num_layers);
  return {
      {{3 * hidden, hidden}, kDeviation},                 // query, key, value
      {{hidden, hidden}, residual},                       // attention output
      {{2 * shape.ffn_hidden_size, hidden}, kDeviation},  // gate, up
      {{hidden, shape.ffn_hidden_size}, residual},        // down
      {{hidden}, 0},                                      // norm before attention
      {{hidden}, 0},                                      // norm before the MLP
  };
}

// Frequency i is rotary_base^(-i / half). Angles are computed in double, as large positions lose digits
// in float.
PositionTables::PositionTables(const ModelShape& shape) {
  const int64_t half = shape.head_size() / 2;
  const at::Tensor frequencies =
      (at::arange(half, at::kDouble) * (-std::log(shape.rotary_base) / static_cast<double>(half))).exp();
  const at::Tensor angles =
      (at::arange(shape.sequence_length, at::kDouble).unsqueeze(1) * frequencies).view({-1, 1, 1, half});
  cosine = angles.cos().to(at::kFloat);
  sine = angles.sin().to(at::kFloat);
  future = at::ones({shape.sequence_length, shape.sequence_length}, at::kBool).triu(1);
}

at::Tensor embedding_forward(const std::vector<at::Tensor>& parameters, const at::Tensor& tokens) {
  return at::embedding(parameters[0], tokens);
}

// Both blocks add to the residual stream: attention, then SwiGLU (Shazeer 2020: "GLU variants improve
// transformer"), whose gate and up projections are one matrix.
at::Tensor layer_forward(const ModelShape& shape, const PositionTables& tables,
                         const std::vector<at::Tensor>& parameters, WeightGradients& gradients,
                         const at::Tensor& input) {
  const at::Tensor attended = input + attention(shape, tables, parameters[0], parameters[1], gradients,
                                                rms_norm(input, parameters[4], shape.norm_epsilon));
  const std::vector<at::Tensor> gate_up =
      linear(rms_norm(attended, parameters[5], shape.norm_epsilon), parameters[2], gradients).chunk(2, -1);
  return attended + linear(at::silu(gate_up[0]) * gate_up[1], parameters[3], gradients);
}

// The final norm, then a matrix product with the output embedding.
at::Tensor head_forward(const ModelShape& shape, const std::vector<at::Tensor>& parameters,
                        WeightGradients& gradients, const at::Tensor& input) {
  return linear(rms_norm(input, parameters[1], shape.norm_epsilon), parameters[0], gradients);
}

}  // namespace hdt::training
