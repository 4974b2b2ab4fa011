// dropout.h: dropout (Srivastava et al. 2014: "Dropout: a simple way to prevent neural networks from
// overfitting") that is the same in every layout.
//
// Whether an element is dropped is a function of the seed, the step, the sample's number in the global batch,
// the unit, the place in the unit, and the element's number in the sample. So it does not matter which rank
// computes the sample, in a micro-batch of which size, or how often: a layer that is recomputed drops the
// same elements.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "training/torch/dropout_rates.h"

namespace hdt::training {

// The places of a unit where elements are dropped.
enum class DropoutPlace : uint8_t {
  kEmbedding,     // the sum of the embeddings
  kAttention,     // the probabilities of attention
  kAttentionOut,  // what attention adds to the residual stream
  kMlpOut,        // what the MLP adds to it
};

// The dropout of one unit for one micro-batch. A value; one that is default-made drops nothing.
class Dropout {
 public:
  Dropout() = default;
  // `first_sample` is the number of the first of `samples` samples in the global batch.
  Dropout(const DropoutRates& rates, int unit, int64_t step, int64_t first_sample, int64_t samples)
      : rates_(rates), unit_(unit), step_(step), first_sample_(first_sample), samples_(samples) {}

  // Sets elements to 0 with the probability of the place, and divides the others by one minus that. `values`
  // are those of all samples, one after the other, in fp32, bf16 or fp64. With a graph, if gradients are on.
  // The mask is not kept: the backward makes it again from the same numbers.
  at::Tensor apply(const at::Tensor& values, DropoutPlace place) const;
  // The derivative: of the output's gradient, that of the values.
  at::Tensor masked(const at::Tensor& values, DropoutPlace place) const;

  // As autograd keeps it for a backward.
  std::vector<int64_t> to_numbers() const;
  static Dropout from_numbers(const std::vector<int64_t>& numbers);

 private:
  double rate_of(DropoutPlace place) const {
    return place == DropoutPlace::kAttention ? rates_.attention : rates_.hidden;
  }

  DropoutRates rates_;
  int unit_ = 0;
  int64_t step_ = 0;
  int64_t first_sample_ = 0;
  int64_t samples_ = 0;
};

}  // namespace hdt::training
