// llama_layers.cc: the mathematics of LLaMA. Parameters are taken by the places that parameters() gives them.
#include "training/torch/llama_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <tuple>

#include "training/torch/attention.h"
#include "training/torch/layer_functions.h"

namespace hdt::training {
namespace {

// The places of a layer's parameters. Query, key and value are the rows of one matrix, and so are gate and
// up.
enum LayerParameter : uint8_t { kQkv, kAttentionOut, kGateUp, kDown, kAttentionNorm, kMlpNorm };

// Radians a position, of each pair of a head's elements: rotary_base^(-i / half), perhaps scaled.
std::vector<double> frequencies(const ModelShape& shape) {
  const int64_t half = shape.head_size() / 2;
  const RopeScaling& scaling = shape.rope_scaling;
  std::vector<double> all;
  for (int64_t i = 0; i < half; ++i) {
    double frequency = std::pow(shape.rotary_base, -static_cast<double>(i) / static_cast<double>(half));
    if (scaling.kind == RopeScalingKind::kLinear) frequency /= scaling.factor;
    if (scaling.kind == RopeScalingKind::kLlama3) {
      // How often the wave fits into a text of the pre-training decides how much of it is kept.
      const double waves =
          static_cast<double>(scaling.original_positions) * frequency / (2 * std::numbers::pi);
      const double kept = std::clamp((waves - scaling.low_frequency_factor) /
                                         (scaling.high_frequency_factor - scaling.low_frequency_factor),
                                     0.0, 1.0);
      frequency *= kept + (1 - kept) / scaling.factor;
    }
    all.push_back(frequency);
  }
  return all;
}

}  // namespace

// Angles are computed in double, as large positions lose digits in float.
LlamaLayers::LlamaLayers(const ModelShape& shape, at::ScalarType type)
    : shape_(shape), future_(future_mask(shape.sequence_length, type)) {
  const at::Tensor positions = at::arange(shape.sequence_length, at::kDouble).unsqueeze(1);
  const at::Tensor angles = (positions * at::tensor(frequencies(shape), at::kDouble)).unsqueeze(1);
  cosine_ = angles.cos().to(type);
  sine_ = angles.sin().to(type);
}

std::vector<ParameterShape> LlamaLayers::parameters(int unit) const {
  const int64_t hidden = shape_.hidden_size;
  const ParameterShape vocabulary{{shape_.vocab_size, hidden}, kDeviation};
  if (unit == 0) return {vocabulary};
  if (unit == shape_.num_layers + 1)
    return shape_.tied_head ? std::vector<ParameterShape>{{{hidden}}}
                            : std::vector<ParameterShape>{vocabulary, {{hidden}}};
  // The outputs that are added to the residual stream start smaller the deeper the model is, so that its
  // variance does not grow with the depth (Radford et al. 2019).
  const double residual = kDeviation / std::sqrt(2.0 * shape_.num_layers);
  const int64_t keys_and_values = 2 * shape_.query_groups() * shape_.head_size();
  return {
      {{hidden + keys_and_values, hidden}, kDeviation},
      {{hidden, hidden}, residual},
      {{2 * shape_.ffn_hidden_size, hidden}, kDeviation},
      {{hidden, shape_.ffn_hidden_size}, residual},
      {{hidden}},
      {{hidden}},
  };
}

at::Tensor LlamaLayers::embedding(const Parameters& parameters, const at::Tensor& tokens,
                                  const UnitContext& context) const {
  return context.dropout.apply(at::embedding(parameters[0], tokens), DropoutPlace::kEmbedding);
}

// Not computed in fewer digits than fp32.
at::Tensor LlamaLayers::norm(const at::Tensor& input, const at::Tensor& weight) const {
  return rms_norm(at_least_float(input), at_least_float(weight), shape_.norm_epsilon).to(input.scalar_type());
}

// Query and key are rotated in one pass.
at::Tensor LlamaLayers::attention(const Parameters& parameters, WeightGradients& gradients,
                                  const at::Tensor& input, const UnitContext& context) const {
  const int64_t length = input.size(1);
  const int64_t heads = shape_.num_attention_heads;
  const int64_t groups = shape_.query_groups();
  const at::Tensor qkv = linear(input, {parameters[kQkv]}, gradients)
                             .view({input.size(0), length, heads + 2 * groups, shape_.head_size()});
  // [T, 1, head size / 2], or [B, T, 1, head size / 2] where samples have positions of their own.
  const auto at_positions = [&](const at::Tensor& table) {
    if (!context.positions.defined()) return table.narrow(0, context.position, length);
    return table.index_select(0, context.positions.flatten())
        .view({input.size(0), length, 1, table.size(-1)});
  };
  const at::Tensor qk = rotate(qkv.narrow(2, 0, heads + groups), at_positions(cosine_), at_positions(sine_));
  at::Tensor key = qk.narrow(2, heads, groups);
  at::Tensor value = qkv.narrow(2, heads + groups, groups);
  if (context.cache != nullptr)
    std::tie(key, value) = context.cache->append(key, value, shape_.sequence_length);
  const at::Tensor mixed = causal_attention(qk.narrow(2, 0, heads), key, value, future_, context);
  return context.dropout.apply(linear(mixed, {parameters[kAttentionOut]}, gradients),
                               DropoutPlace::kAttentionOut);
}

// Both blocks add to the residual stream: attention, then the MLP.
at::Tensor LlamaLayers::layer(const Parameters& parameters, WeightGradients& gradients,
                              const at::Tensor& input, const UnitContext& context) const {
  const at::Tensor attended =
      input + attention(parameters, gradients, norm(input, parameters[kAttentionNorm]), context);
  const at::Tensor gate_up = linear(norm(attended, parameters[kMlpNorm]), {parameters[kGateUp]}, gradients);
  const at::Tensor down = linear(swiglu(gate_up), {parameters[kDown]}, gradients);
  return attended + context.dropout.apply(down, DropoutPlace::kMlpOut);
}

at::Tensor LlamaLayers::final_norm(const Parameters& parameters, const at::Tensor& input) const {
  return norm(input, parameters.back());
}

}  // namespace hdt::training
