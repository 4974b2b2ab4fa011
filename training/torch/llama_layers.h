// llama_layers.h: LLaMA (Touvron et al. 2023: "LLaMA: Open and efficient foundation language models"):
// RMSNorm before each block, rotary position embeddings, causal attention with grouped queries, SwiGLU, no
// biases.
#pragma once

#include "training/torch/model_layers.h"

namespace hdt::training {

class LlamaLayers final : public ModelLayers {
 public:
  LlamaLayers(const ModelShape& shape, at::ScalarType type);

  std::vector<ParameterShape> parameters(int unit) const override;
  at::Tensor embedding(const Parameters& parameters, const at::Tensor& tokens,
                       const UnitContext& context) const override;
  at::Tensor layer(const Parameters& parameters, WeightGradients& gradients, const at::Tensor& input,
                   const UnitContext& context) const override;
  at::Tensor final_norm(const Parameters& parameters, const at::Tensor& input) const override;

 private:
  at::Tensor attention(const Parameters& parameters, WeightGradients& gradients, const at::Tensor& input,
                       const UnitContext& context) const;
  at::Tensor norm(const at::Tensor& input, const at::Tensor& weight) const;

  ModelShape shape_;
  // Tables that depend on positions only: cosine and sine of every position and frequency, and the mask of
  // the future, for up to sequence_length tokens.
  at::Tensor cosine_;  // [T, 1, head_size / 2]
  at::Tensor sine_;
  at::Tensor future_;
};

}  // namespace hdt::training
