// token_loss.h: the loss of the head: matrix product and cross entropy, in pieces where the logits are many.
#pragma once

#include <ATen/core/Tensor.h>

#include "training/torch/linear.h"

namespace hdt::training {

// A target of this value has neither loss nor gradient. It is cross_entropy_loss's default.
inline constexpr int64_t kIgnoredTarget = -100;

// The cross entropy of input x weight^T, summed over the rows: [rows, hidden] and [vocabulary, hidden], with
// `targets` [rows]. If gradients are on, weight.grad() must be bound. Logits are of the input's type, what
// follows is computed in fp32 at least.
//
// Logits of a large vocabulary would take more memory than all else. Beyond 64 MiB of them they are computed
// piece by piece, in the backward again; the weight's gradient is then added by the backward itself and not
// given to `gradients`, which would keep as much.
at::Tensor token_loss(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& targets,
                      WeightGradients& gradients);

}  // namespace hdt::training
