// layer_functions.cc: forwards and their derivatives by hand. Results of forward() are new tensors, so they
// are changed in place.
#include "training/torch/layer_functions.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace hdt::training {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct RmsNorm : public Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            double epsilon) {
    const at::Tensor length = at::linalg_vector_norm(input, 2, at::IntArrayRef{-1}, true);
    const at::Tensor factor = length.square_().div_(input.size(-1)).add_(epsilon).rsqrt_();
    context->save_for_backward({input, weight, factor});
    return (input * factor).mul_(weight);
  }

  // With n = input * factor: d weight = sum(g * n), d input = factor * (g * weight - n * mean(g * n *
  // weight)).
  static variable_list backward(AutogradContext* context, variable_list output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& gradient = output_gradients[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor normed = saved[0] * saved[2];
    const at::Tensor product = gradient * normed;
    const at::Tensor mean = at::matmul(product, weight).div_(weight.size(0)).unsqueeze(-1);
    at::Tensor input_gradient = gradient * weight;
    input_gradient.addcmul_(normed, mean, -1).mul_(saved[2]);
    return {input_gradient, product.reshape({-1, weight.size(0)}).sum(0), at::Tensor()};
  }
};

// By the angles, or back by them (direction -1).
at::Tensor rotated(const at::Tensor& input, const at::Tensor& cosine, const at::Tensor& sine,
                   double direction) {
  at::Tensor output = at::empty(input.sizes(), input.options());
  const int64_t half = input.size(-1) / 2;
  const at::Tensor first = input.narrow(-1, 0, half);
  const at::Tensor second = input.narrow(-1, half, half);
  at::Tensor first_out = output.narrow(-1, 0, half);
  at::Tensor second_out = output.narrow(-1, half, half);
  at::mul_out(first_out, first, cosine).addcmul_(second, sine, -direction);
  at::mul_out(second_out, second, cosine).addcmul_(first, sine, direction);
  return output;
}

struct Rotate : public Function<Rotate> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& cosine,
                            const at::Tensor& sine) {
    context->save_for_backward({cosine, sine});
    return rotated(input, cosine, sine, 1);
  }

  static variable_list backward(AutogradContext* context, variable_list output_gradients) {
    const variable_list saved = context->get_saved_variables();
    return {rotated(output_gradients[0], saved[0], saved[1], -1), at::Tensor(), at::Tensor()};
  }
};

struct SwiGlu : public Function<SwiGlu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up) {
    context->save_for_backward({gate_up});
    const int64_t size = gate_up.size(-1) / 2;
    return at::silu(gate_up.narrow(-1, 0, size)).mul_(gate_up.narrow(-1, size, size));
  }

  static variable_list backward(AutogradContext* context, variable_list output_gradients) {
    const at::Tensor gate_up = context->get_saved_variables()[0];
    const at::Tensor& gradient = output_gradients[0];
    const int64_t size = gate_up.size(-1) / 2;
    const at::Tensor gate = gate_up.narrow(-1, 0, size);
    at::Tensor input_gradient = at::empty(gate_up.sizes(), gate_up.options());
    at::Tensor of_gate = input_gradient.narrow(-1, 0, size);
    at::Tensor of_up = input_gradient.narrow(-1, size, size);
    at::silu_backward_out(of_gate, gradient * gate_up.narrow(-1, size, size), gate);
    at::mul_out(of_up, gradient, at::silu(gate));
    return {input_gradient};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon) {
  return RmsNorm::apply(input, weight, epsilon);
}

at::Tensor rotate(const at::Tensor& input, const at::Tensor& cosine, const at::Tensor& sine) {
  return Rotate::apply(input, cosine, sine);
}

at::Tensor swiglu(const at::Tensor& gate_up) { return SwiGlu::apply(gate_up); }

}  // namespace hdt::training
