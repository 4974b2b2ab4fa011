// attention.cc: two batched products with a softmax between them.
#include "training/torch/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>

namespace hdt::training {

at::Tensor future_mask(int64_t length, at::ScalarType type) {
  return at::full({length, length}, -std::numeric_limits<double>::infinity(), type).triu(1);
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// The heads of a group lie below each other in one matrix, so keys and values are not repeated. Scale and
// mask are part of the product: the mask is what its result is added to, and so a score of the future becomes
// 0 in the softmax. Neither takes a pass over the scores, forward or backward.
at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const at::Tensor& mask, const Dropout& dropout) {
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
  // For the rows of all heads: each sample's own mask, or one for all.
  const at::Tensor rows = mask.dim() == 3
                              ? mask.unsqueeze(1)
                                    .expand({batch, heads, length, keys})
                                    .reshape({batch * groups, shared * length, keys})
                              : mask.narrow(0, keys - length, length).narrow(1, 0, keys).repeat({shared, 1});
  const at::Tensor scores =
      at::baddbmm(rows, q, k.transpose(-2, -1), 1, 1 / std::sqrt(static_cast<double>(size)));
  const at::Tensor probabilities = dropout.apply(scores.softmax(-1), DropoutPlace::kAttention);
  const at::Tensor mixed = at::bmm(probabilities, v);
  return mixed.view({batch, groups, shared, length, size})
      .permute({0, 3, 1, 2, 4})
      .reshape({batch, length, heads * size});
}

// Attention that keeps its inputs only. Its backward makes the graph of them, and goes back through that.
struct RecomputedAttention : public Function<RecomputedAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& value, const at::Tensor& mask, const Dropout& dropout) {
    // Copies: a view would keep the whole product of which query, key and value are parts.
    context->save_for_backward({query.contiguous(), key.contiguous(), value.contiguous(), mask});
    context->saved_data["dropout"] = dropout.to_numbers();
    return attend(query, key, value, mask, dropout);
  }

  static variable_list backward(AutogradContext* context, variable_list output_gradients) {
    const c10::AutoGradMode gradients(true);
    const variable_list saved = context->get_saved_variables();
    variable_list inputs;
    for (int i = 0; i < 3; ++i) inputs.push_back(saved[i].detach().set_requires_grad(true));
    const Dropout dropout = Dropout::from_numbers(context->saved_data["dropout"].toIntVector());
    const at::Tensor output = attend(inputs[0], inputs[1], inputs[2], saved[3], dropout);
    output.backward(output_gradients[0]);
    return {inputs[0].grad(), inputs[1].grad(), inputs[2].grad(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor causal_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const at::Tensor& future, const UnitContext& context) {
  const at::Tensor& mask = context.mask.defined() ? context.mask : future;
  if (context.recompute_attention && c10::GradMode::is_enabled())
    return RecomputedAttention::apply(query, key, value, mask, context.dropout);
  return attend(query, key, value, mask, context.dropout);
}

}  // namespace hdt::training
