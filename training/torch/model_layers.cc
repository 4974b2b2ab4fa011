// model_layers.cc: which layers a shape asks for.
#include "training/torch/model_layers.h"

#include "training/torch/gpt2_layers.h"
#include "training/torch/llama_layers.h"

namespace hdt::training {

std::unique_ptr<ModelLayers> make_layers(const ModelShape& shape, at::ScalarType type) {
  if (shape.family == ModelFamily::kGpt2) return std::make_unique<Gpt2Layers>(shape, type);
  return std::make_unique<LlamaLayers>(shape, type);
}

}  // namespace hdt::training
