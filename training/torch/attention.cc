// attention.cc: two batched products with a softmax between them.
#include "training/torch/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/full.h>

#include <cmath>
#include <limits>

namespace hdt::training {

at::Tensor future_mask(int64_t length, at::ScalarType type) {
  return at::full({length, length}, -std::numeric_limits<double>::infinity(), type).triu(1);
}

// The heads of a group lie below each other in one matrix, so keys and values are not repeated. Scale and
// mask are part of the product: the mask is what its result is added to, and so a score of the future becomes
// 0 in the softmax. Neither takes a pass over the scores, forward or backward.
at::Tensor causal_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const at::Tensor& future) {
  const int64_t batch = query.size(0);
  const int64_t length = query.size(1);
  const int64_t heads = query.size(2);
  const int64_t size = query.size(3);
  const int64_t groups = key.size(2);
  const int64_t keys = key.size(1);
  const int64_t shared = heads / groups;
  const at::Tensor q = query.view({batch, length, groups, shared, size})
                           .permute({0, 2, 3, 1, 4})
                           .reshape({batch * groups, shared * length, size});
  const at::Tensor k = key.transpose(1, 2).reshape({batch * groups, keys, size});
  const at::Tensor v = value.transpose(1, 2).reshape({batch * groups, keys, size});
  const at::Tensor mask = future.narrow(0, keys - length, length).narrow(1, 0, keys).repeat({shared, 1});
  const at::Tensor scores =
      at::baddbmm(mask, q, k.transpose(-2, -1), 1, 1 / std::sqrt(static_cast<double>(size)));
  const at::Tensor mixed = at::bmm(scores.softmax(-1), v);
  return mixed.view({batch, groups, shared, length, size})
      .permute({0, 3, 1, 2, 4})
      .reshape({batch, length, heads * size});
}

}  // namespace hdt::training
