// linear.h: a layer's matrix product, whose weight gradient can be computed later than that of its input.
//
// Torch's own product computes both gradients in one backward. The stage before waits for the gradient of the
// input only, so a zero-bubble schedule sends that on first (Qi, Wan, Huang, Lin 2023: "Zero bubble pipeline
// parallelism").
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace hdt::training {

// How a weight lies in memory: [out, in] as torch's Linear has it, or [in, out] as GPT-2's Conv1D in Hugging
// Face's library.
enum class WeightLayout : uint8_t { kOutIn, kInOut };

// Gradients that are still to be computed: that of a weight, output_gradient^T x input or its transpose,
// added to `sum`; and that of a bias, the sum of output_gradient over its rows, added to `bias_sum`.
struct WeightGradient {
  at::Tensor input;            // [rows, in]
  at::Tensor output_gradient;  // [rows, out]
  at::Tensor sum;              // as the weight, a view of the engine's memory
  at::Tensor bias_sum;         // [out]; undefined where there is no bias
  WeightLayout layout = WeightLayout::kOutIn;
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

// A matrix and its bias, which is undefined where there is none. If gradients are on, the grad() of both must
// be bound.
struct Projection {
  at::Tensor weight;
  at::Tensor bias = {};
  WeightLayout layout = WeightLayout::kOutIn;
};

// The tensor in fp32 if its type has fewer digits, else itself.
at::Tensor at_least_float(const at::Tensor& tensor);

// input x weight^T + bias over the last dimension: [..., in] to [..., out]. If gradients are on, the graph's
// backward computes the gradient of `input`, and gives those of weight and bias to `gradients`.
at::Tensor linear(const at::Tensor& input, const Projection& projection, WeightGradients& gradients);

}  // namespace hdt::training
