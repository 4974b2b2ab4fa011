// tensor_names.h: the tensors of the model by the names that it has in Hugging Face's library. Free of
// torch.
#pragma once

#include <cstdint>
#include <vector>

#include "training/engine/tensor_info.h"
#include "training/torch/model_shape.h"

namespace hdt::training {

// The tensors of a unit (training/engine/layout.h) in the order of its memory. The projections are matrices
// of their own there; the computation joins query, key and value, and gate and up, as the rows of a joined
// matrix are those of its parts, one after the other.
std::vector<TensorInfo> named_tensors(const ModelShape& shape, int unit);

// Those of the whole model, in the order of units.
std::vector<TensorInfo> model_tensors(const ModelShape& shape);

// The parameters of the whole model, as a number.
int64_t parameter_count(const ModelShape& shape);

}  // namespace hdt::training
