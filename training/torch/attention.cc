// attention.cc: two batched products with a softmax between them.
#include "training/torch/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include <cmath>
#include <limits>

namespace hdt::training {

at::Tensor future_mask(int64_t length) { return at::ones({length, length}, at::kBool).triu(1); }

// The heads of a group lie below each other in one matrix, so keys and values are not repeated. The scale
// 1 / sqrt(size) is applied to the query, which is smaller than the scores. Masked scores become 0 in the
// softmax.
at::Tensor causal_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const at::Tensor& future) {
  const int64_t batch = query.size(0);
  const int64_t length = query.size(1);
  const int64_t heads = query.size(2);
  const int64_t size = query.size(3);
  const int64_t groups = key.size(2);
  const int64_t shared = heads / groups;
  const at::Tensor q = (query.view({batch, length, groups, shared, size}).permute({0, 2, 3, 1, 4}) /
                        std::sqrt(static_cast<double>(size)))
                           .reshape({batch, groups, shared * length, size});
  const at::Tensor k = key.transpose(1, 2);
  const at::Tensor v = value.transpose(1, 2);
  const at::Tensor mask = future.narrow(0, 0, length).narrow(1, 0, length);
  const at::Tensor scores = at::matmul(q, k.transpose(-2, -1))
                                .view({batch, groups, shared, length, length})
                                .masked_fill(mask, -std::numeric_limits<double>::infinity());
  const at::Tensor mixed = at::matmul(scores.softmax(-1).view({batch, groups, shared * length, length}), v);
  return mixed.view({batch, groups, shared, length, size})
      .permute({0, 3, 1, 2, 4})
      .reshape({batch, length, heads * size});
}

}  // namespace hdt::training
