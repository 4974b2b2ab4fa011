// token_loss.cc: as a function of autograd's own kind, whose backward repeats the product.
#include "training/torch/token_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace hdt::training {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kMostLogits = int64_t{1} << 24;  // of a piece

int64_t rows_of_a_piece(int64_t vocabulary) { return std::max<int64_t>(1, kMostLogits / vocabulary); }

// Calls work(first row, rows) for each piece.
template <typename Work>
void for_each_piece(const at::Tensor& input, const at::Tensor& weight, const Work& work) {
  const int64_t most = rows_of_a_piece(weight.size(0));
  for (int64_t row = 0; row < input.size(0); row += most) work(row, std::min(most, input.size(0) - row));
}

struct LossInPieces : public torch::autograd::Function<LossInPieces> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& targets) {
    context->save_for_backward({input, weight, targets});
    context->saved_data["sum"] = weight.grad();
    // In double, as the pieces are few and their sums large.
    at::Tensor loss = at::zeros({}, at::kDouble);
    for_each_piece(input, weight, [&](int64_t row, int64_t rows) {
      const at::Tensor logits = at_least_float(at::linear(input.narrow(0, row, rows), weight));
      loss += at::cross_entropy_loss(logits, targets.narrow(0, row, rows), {}, at::Reduction::Sum);
    });
    return loss;
  }

  // The derivative of a row's loss by its logits is their softmax less 1 at the target; zero if the target is
  // ignored.
  static variable_list backward(AutogradContext* context, variable_list output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor& weight = saved[1];
    const auto factor = output_gradients[0].item<double>();
    at::Tensor sum = context->saved_data["sum"].toTensor();
    at::Tensor input_gradient = at::empty_like(input);
    for_each_piece(input, weight, [&](int64_t row, int64_t rows) {
      const at::Tensor part = input.narrow(0, row, rows);
      const at::Tensor target = saved[2].narrow(0, row, rows).unsqueeze(1);
      at::Tensor gradient = at_least_float(at::linear(part, weight)).softmax(-1);
      gradient.scatter_add_(1, target.clamp_min(0), at::full({rows, 1}, -1, gradient.options()));
      gradient.mul_(target.ne(kIgnoredTarget).to(gradient.dtype()).mul_(factor));
      gradient = gradient.to(weight.scalar_type());
      input_gradient.narrow(0, row, rows).copy_(gradient.matmul(weight));
      sum.addmm_(gradient.t(), part);
    });
    return {input_gradient, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor token_loss(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& targets,
                      WeightGradients& gradients) {
  if (input.size(0) > rows_of_a_piece(weight.size(0))) return LossInPieces::apply(input, weight, targets);
  return at::cross_entropy_loss(at_least_float(linear(input, {weight}, gradients)), targets, {},
                                at::Reduction::Sum);
}

}  // namespace hdt::training
