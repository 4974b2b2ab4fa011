// gpt2_layers.cc: the mathematics of GPT-2. Parameters are taken by the places that parameters() gives them.
#include "training/torch/gpt2_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>

#include <cmath>
#include <tuple>

#include "training/torch/attention.h"

namespace hdt::training {
namespace {

// The places of a layer's parameters; each matrix and each norm has its bias behind it. Query, key and value
// are the columns of one matrix.
enum Gpt2Parameter : uint8_t { kGptQkv = 0, kGptOut = 2, kUp = 4, kGptDown = 6, kNorm1 = 8, kNorm2 = 10 };

// A matrix [in, out] and the bias behind it.
Projection projection(const Parameters& parameters, Gpt2Parameter place) {
  return {parameters[place], parameters[place + 1], WeightLayout::kInOut};
}

}  // namespace

Gpt2Layers::Gpt2Layers(const ModelShape& shape, at::ScalarType type)
    : shape_(shape), future_(future_mask(shape.sequence_length, type)) {}

std::vector<ParameterShape> Gpt2Layers::parameters(int unit) const {
  const int64_t hidden = shape_.hidden_size;
  const int64_t ffn = shape_.ffn_hidden_size;
  const ParameterShape vocabulary{{shape_.vocab_size, hidden}, kDeviation};
  const ParameterShape ones{{hidden}};
  const auto zeros = [](int64_t size) { return ParameterShape{{size}, 0, 0}; };
  if (unit == 0) return {vocabulary, {{shape_.positions(), hidden}, kDeviation}};
  if (unit == shape_.num_layers + 1)
    return shape_.tied_head ? std::vector<ParameterShape>{ones, zeros(hidden)}
                            : std::vector<ParameterShape>{vocabulary, ones, zeros(hidden)};
  // As in llama_layers.cc: what is added to the residual stream starts smaller the deeper the model is.
  const double residual = kDeviation / std::sqrt(2.0 * shape_.num_layers);
  return {{{hidden, 3 * hidden}, kDeviation},
          zeros(3 * hidden),
          {{hidden, hidden}, residual},
          zeros(hidden),
          {{hidden, ffn}, kDeviation},
          zeros(ffn),
          {{ffn, hidden}, residual},
          zeros(hidden),
          ones,
          zeros(hidden),
          ones,
          zeros(hidden)};
}

// Each token, and each of the T positions.
at::Tensor Gpt2Layers::embedding(const Parameters& parameters, const at::Tensor& tokens,
                                 const UnitContext& context) const {
  const at::Tensor positions = context.positions.defined()
                                   ? at::embedding(parameters[1], context.positions)
                                   : parameters[1].narrow(0, context.position, tokens.size(1));
  return context.dropout.apply(at::embedding(parameters[0], tokens) + positions, DropoutPlace::kEmbedding);
}

// Ba et al. 2016: "Layer normalization". The norm is over the last dimension.
at::Tensor Gpt2Layers::norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) const {
  return at::layer_norm(input, {shape_.hidden_size}, weight, bias, shape_.norm_epsilon);
}

at::Tensor Gpt2Layers::attention(const Parameters& parameters, WeightGradients& gradients,
                                 const at::Tensor& input, const UnitContext& context) const {
  const at::Tensor qkv =
      linear(input, projection(parameters, kGptQkv), gradients)
          .view({input.size(0), input.size(1), 3, shape_.num_attention_heads, shape_.head_size()});
  at::Tensor key = qkv.select(2, 1);
  at::Tensor value = qkv.select(2, 2);
  if (context.cache != nullptr)
    std::tie(key, value) = context.cache->append(key, value, shape_.sequence_length);
  const at::Tensor mixed = causal_attention(qkv.select(2, 0), key, value, future_, context);
  return context.dropout.apply(linear(mixed, projection(parameters, kGptOut), gradients),
                               DropoutPlace::kAttentionOut);
}

// Both blocks add to the residual stream: attention, then the MLP. GELU is the form with tanh.
at::Tensor Gpt2Layers::layer(const Parameters& parameters, WeightGradients& gradients,
                             const at::Tensor& input, const UnitContext& context) const {
  const at::Tensor attended =
      input +
      attention(parameters, gradients, norm(input, parameters[kNorm1], parameters[kNorm1 + 1]), context);
  const at::Tensor up = linear(norm(attended, parameters[kNorm2], parameters[kNorm2 + 1]),
                               projection(parameters, kUp), gradients);
  const at::Tensor down = linear(at::gelu(up, "tanh"), projection(parameters, kGptDown), gradients);
  return attended + context.dropout.apply(down, DropoutPlace::kMlpOut);
}

at::Tensor Gpt2Layers::final_norm(const Parameters& parameters, const at::Tensor& input) const {
  const size_t bias = parameters.size() - 1;
  return norm(input, parameters[bias - 1], parameters[bias]);
}

}  // namespace hdt::training
