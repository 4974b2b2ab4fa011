// model_layers.h: the computation of each kind of unit (embedding, transformer layer, head) on torch tensors.
// One implementation a model family: llama_layers.h, gpt2_layers.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "training/engine/compute.h"
#include "training/torch/linear.h"
#include "training/torch/model_shape.h"
#include "training/torch/unit_context.h"

namespace hdt::training {

// The deviation of start values, as in GPT-2 (Radford et al. 2019: "Language models are unsupervised
// multitask learners").
inline constexpr double kDeviation = 0.02;

// One parameter tensor of a unit, as the computation has it; the tensors of tensor_names.h may be its parts.
struct ParameterShape {
  std::vector<int64_t> sizes;
  double deviation = 0;  // start values: normal with this deviation; 0: all of them are `value`
  double value = 1;
};

// The parameters of a unit, in the order of ModelLayers::parameters().
using Parameters = std::vector<at::Tensor>;

// The functions are pure, but for a cache, and build autograd graphs if gradients are on; the gradients of
// matrices go to `gradients` (linear.h). Made once for each stage, used by its thread. In shapes B is the
// number of samples and T the number of tokens of each; T may be below sequence_length.
class ModelLayers {
 public:
  virtual ~ModelLayers() = default;

  // The parameters of a unit, in the order in which they lie in memory. `unit` counts as in the engine
  // (training/engine/layout.h). Those of the head begin with its matrix, unless that is the embedding's
  // (ModelShape::tied_head); the embedding's are first of its unit.
  virtual std::vector<ParameterShape> parameters(int unit) const = 0;
  // Tokens [B, T] to [B, T, hidden].
  virtual at::Tensor embedding(const Parameters& parameters, const at::Tensor& tokens,
                               const UnitContext& context) const = 0;
  // [B, T, hidden] to [B, T, hidden].
  virtual at::Tensor layer(const Parameters& parameters, WeightGradients& gradients, const at::Tensor& input,
                           const UnitContext& context) const = 0;
  // The norm in front of the head's matrix product: [B, T, hidden] to the same.
  virtual at::Tensor final_norm(const Parameters& parameters, const at::Tensor& input) const = 0;
};

// The layers of the shape's family. `type`: of parameters and activations; tests take at::kDouble.
std::unique_ptr<ModelLayers> make_layers(const ModelShape& shape, at::ScalarType type = at::kFloat);

}  // namespace hdt::training
