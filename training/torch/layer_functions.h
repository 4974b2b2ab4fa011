// layer_functions.h: parts of a layer as functions of autograd's own kind: they take fewer passes over memory
// than the operations that they are made of, and keep less for the backward.
#pragma once

#include <ATen/core/Tensor.h>

namespace hdt::training {

// Root mean square norm over the last dimension (Zhang and Sennrich 2019: "Root mean square layer
// normalization"): input / sqrt(mean(input^2) + epsilon) * weight. `weight` has the last dimension's size.
at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon);

// Rotary embeddings (Su et al. 2021: "RoFormer"): rotates the pairs (i, i + head_size / 2) of the last
// dimension by the angle of their position. `input` is [B, T, heads, head_size], `cosine` and `sine` are [T,
// 1, head_size / 2] and have no gradient.
at::Tensor rotate(const at::Tensor& input, const at::Tensor& cosine, const at::Tensor& sine);

// SwiGLU (Shazeer 2020: "GLU variants improve transformer"): silu(gate) * up, of [..., 2 F] with the gate
// first.
at::Tensor swiglu(const at::Tensor& gate_up);

}  // namespace hdt::training
