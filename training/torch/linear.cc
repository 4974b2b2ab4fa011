// linear.cc: the product as a function of autograd's own kind.
#include "training/torch/linear.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace hdt::training {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor as_matrix(const at::Tensor& tensor) { return tensor.reshape({-1, tensor.size(-1)}); }

struct Linear : public torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            WeightGradients* gradients) {
    context->save_for_backward({input, weight});
    // The context keeps values of torch's own types only. The pointer is valid: see WeightGradients.
    context->saved_data["gradients"] = reinterpret_cast<int64_t>(gradients);
    context->saved_data["sum"] = weight.grad();
    return at::linear(input, weight);
  }

  // The weight's gradient does not go through autograd: it is added in place, in one pass over it.
  static variable_list backward(AutogradContext* context, variable_list output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& output_gradient = output_gradients[0];
    reinterpret_cast<WeightGradients*>(context->saved_data["gradients"].toInt())
        ->take({as_matrix(saved[0]), as_matrix(output_gradient), context->saved_data["sum"].toTensor()});
    return {at::matmul(output_gradient, saved[1]), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

void WeightGradient::add() const {
  const c10::AutoGradMode no_gradients(false);
  sum.addmm_(output_gradient.t(), input);
}

void WeightGradients::take(WeightGradient gradient) {
  if (kept_ == nullptr)
    gradient.add();
  else
    kept_->push_back(std::move(gradient));
}

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, WeightGradients& gradients) {
  if (!c10::GradMode::is_enabled()) return at::linear(input, weight);
  return Linear::apply(input, weight, &gradients);
}

}  // namespace hdt::training
