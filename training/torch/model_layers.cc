// model_layers.cc: which layers a shape asks for.
#include "training/torch/model_layers.h"

#include "training/torch/llama_layers.h"

namespace hdt::training {

std::unique_ptr<ModelLayers> make_layers(const ModelShape& shape, at::ScalarType type) {
  return std::make_unique<LlamaLayers>(shape, type);
}

}  // namespace hdt::training
