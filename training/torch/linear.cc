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

// The weight as [out, in].
at::Tensor out_in(const at::Tensor& weight, WeightLayout layout) {
  return layout == WeightLayout::kOutIn ? weight : weight.t();
}

at::Tensor product(const at::Tensor& input, const Projection& projection) {
  return at::linear(input, out_in(projection.weight, projection.layout), projection.bias);
}

struct Linear : public torch::autograd::Function<Linear> {
  // The weight is an argument, so that the result has a graph also where the input has none.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const Projection* projection, WeightGradients* gradients) {
    context->save_for_backward({input, weight});
    // The context keeps values of torch's own types only. The pointer is valid: see WeightGradients.
    context->saved_data["gradients"] = reinterpret_cast<int64_t>(gradients);
    context->saved_data["sum"] = weight.grad();
    context->saved_data["layout"] = static_cast<int64_t>(projection->layout);
    if (projection->bias.defined()) context->saved_data["bias_sum"] = projection->bias.grad();
    return product(input, *projection);
  }

  // The gradients of weight and bias do not go through autograd: they are added in place, in one pass.
  static variable_list backward(AutogradContext* context, variable_list output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& output_gradient = output_gradients[0];
    auto& data = context->saved_data;
    const auto layout = static_cast<WeightLayout>(data["layout"].toInt());
    const auto bias_sum = data.find("bias_sum");
    reinterpret_cast<WeightGradients*>(data["gradients"].toInt())
        ->take({as_matrix(saved[0]), as_matrix(output_gradient), data["sum"].toTensor(),
                bias_sum == data.end() ? at::Tensor() : bias_sum->second.toTensor(), layout});
    return {at::matmul(output_gradient, out_in(saved[1], layout)), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

void WeightGradient::add() const {
  const c10::AutoGradMode no_gradients(false);
  if (layout == WeightLayout::kOutIn)
    sum.addmm_(output_gradient.t(), input);
  else
    sum.addmm_(input.t(), output_gradient);
  if (bias_sum.defined()) bias_sum.add_(output_gradient.sum(0));
}

void WeightGradients::take(WeightGradient gradient) {
  if (kept_ == nullptr)
    gradient.add();
  else
    kept_->push_back(std::move(gradient));
}

at::Tensor at_least_float(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 ? tensor.to(at::kFloat) : tensor;
}

at::Tensor linear(const at::Tensor& input, const Projection& projection, WeightGradients& gradients) {
  if (!c10::GradMode::is_enabled()) return product(input, projection);
  return Linear::apply(input, projection.weight, &projection, &gradients);
}

}  // namespace hdt::training
