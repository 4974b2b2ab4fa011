// wide_parameters.cc: counts the users of each unit's copies.
#include "training/torch/wide_parameters.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

namespace hdt::training {

void WideParameters::acquire(size_t unit, const std::vector<at::Tensor>& stored) {
  Unit& wide = units_[unit];
  if (wide.users++ > 0) return;
  const c10::AutoGradMode no_gradients(false);
  for (const at::Tensor& tensor : stored) {
    at::Tensor copy = tensor.to(at::kFloat);
    copy.set_requires_grad(true);
    copy.mutable_grad() = at::zeros(copy.sizes(), at::kFloat);
    wide.tensors.push_back(std::move(copy));
  }
}

void WideParameters::release(size_t unit) {
  Unit& wide = units_[unit];
  if (--wide.users == 0) wide.tensors.clear();
}

}  // namespace hdt::training
