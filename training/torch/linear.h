// linear.h: a layer's matrix product, whose weight gradient can be computed later than that of its input.
//
// Torch's own product computes both gradients in one backward. The stage before waits for the gradient of the
// input only, so a zero-bubble schedule sends that on first (Qi, Wan, Huang, Lin 2023: "Zero bubble pipeline
// parallelism").
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace hdt::training {

// A weight gradient that is still to be computed: output_gradient^T x input, added to `sum`.
struct WeightGradient {
  at::Tensor input;            // [rows, in]
  at::Tensor output_gradient;  // [rows, out]
  at::Tensor sum;              // [out, in], a view of the engine's memory
  void add() const;
};

// Decides whether a backward computes the weight gradients of its products or keeps them. Owned by the stage,
// used by the stage's thread. It must outlive the graphs of products that were made with it.
class WeightGradients {
 public:
  // From now on gradients are appended to `kept`, which the caller owns; null: they are computed at once.
  void keep_in(std::vector<WeightGradient>* kept) { kept_ = kept; }
  void take(WeightGradient gradient);

 private:
  std::vector<WeightGradient>* kept_ = nullptr;
};

// input x weight^T over the last dimension: [..., in] to [..., out]. If gradients are on, the graph's
// backward computes the gradient of `input`, and gives that of `weight` to `gradients`; weight.grad() must be
// bound.
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, WeightGradients& gradients);

}  // namespace hdt::training
