// wide_parameters.h: fp32 copies of parameters in fp16, for as long as something is computed with them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace hdt::training {

// libtorch has no products in fp16 on the CPU. So a unit's parameters are converted when it is computed, and
// the copies are dropped when nobody needs them any more: after the forward, or where a graph of the unit is
// kept after its backward. All graphs of a unit share one copy, since no update comes between. Owned by the
// stage, used on its thread.
class WideParameters {
 public:
  explicit WideParameters(size_t units) : units_(units) {}

  // One user more. The first one makes the copies of `stored`, whose gradients are zeros.
  void acquire(size_t unit, const std::vector<at::Tensor>& stored);
  // One user less; the last one drops the copies, so their gradients must have been taken.
  void release(size_t unit);
  // Only between acquire() and release().
  std::vector<at::Tensor>& tensors(size_t unit) { return units_[unit].tensors; }
  bool has(size_t unit) const { return units_[unit].users > 0; }

 private:
  struct Unit {
    std::vector<at::Tensor> tensors;
    int users = 0;
  };
  std::vector<Unit> units_;
};

}  // namespace hdt::training
