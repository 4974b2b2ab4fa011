// tensor_info.h: what the engine knows of a tensor of the model: its name, its shape, and whether it decays.
//
// A unit's parameters are its tensors, one after the other. Names and shapes do not depend on the layout, so
// a checkpoint that goes by names can be read under any other one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace hdt::training {

// One tensor, whole: stages cut the model between units, and never through a tensor.
struct TensorInfo {
  // Unique over the model. LLaMA's in Hugging Face's library, as "model.layers.3.self_attn.q_proj.weight",
  // where the model is one: shards are then read by other programs, too.
  std::string name;
  std::vector<int64_t> shape;  // row-major; matrices are [outputs, inputs]
  bool weight_decay = true;    // matrices take it, norms do not

  size_t elements() const {
    size_t product = 1;
    for (const int64_t extent : shape) product *= static_cast<size_t>(extent);
    return product;
  }
};

// The floats of all of them.
inline size_t elements_of(std::span<const TensorInfo> tensors) {
  size_t sum = 0;
  for (const TensorInfo& tensor : tensors) sum += tensor.elements();
  return sum;
}

}  // namespace hdt::training
