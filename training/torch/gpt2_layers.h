// gpt2_layers.h: GPT-2 (Radford et al. 2019: "Language models are unsupervised multitask learners"):
// LayerNorm before each block, learned positions, causal attention, GELU, biases. Without dropout.
#pragma once

#include "training/torch/model_layers.h"

namespace hdt::training {

// Matrices are [in, out], as GPT-2's are in Hugging Face's library.
class Gpt2Layers final : public ModelLayers {
 public:
  Gpt2Layers(const ModelShape& shape, at::ScalarType type);

  std::vector<ParameterShape> parameters(int unit) const override;
  at::Tensor embedding(const Parameters& parameters, const at::Tensor& tokens,
                       const UnitContext& context) const override;
  at::Tensor layer(const Parameters& parameters, WeightGradients& gradients, const at::Tensor& input,
                   const UnitContext& context) const override;
  at::Tensor final_norm(const Parameters& parameters, const at::Tensor& input) const override;

 private:
  at::Tensor norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) const;
  at::Tensor attention(const Parameters& parameters, WeightGradients& gradients, const at::Tensor& input,
                       const UnitContext& context) const;

  ModelShape shape_;
  at::Tensor future_;  // future_mask() of sequence_length
};

}  // namespace hdt::training
