// unit_memory.h: the flat parameters and gradients of a stage's units, in the order of units. Two allocations
// hold everything, so that reductions, clipping and the optimizer work on plain memory and copy nothing.
#pragma once

#include <span>
#include <vector>

#include "base/status.h"
#include "training/engine/compute.h"
#include "training/engine/messenger.h"

namespace hdt::training {

// Owned by the trainer; the compute's tensors are views of it.
class UnitMemory {
 public:
  // Allocates for the units of `compute` and binds them. Parameters are of the compute's type, gradients of
  // that one or fp32. kSystem and others: what the messenger reports.
  static Result<UnitMemory> create(StageCompute& compute, Messenger& messenger,
                                   NumberType gradients = NumberType::kFloat32);

  UnitRange units() const { return units_; }
  // The tensors of a unit, in the order in which they lie in memory.
  std::span<const TensorInfo> tensors(int unit) const { return tensors_[unit - units_.first]; }
  // The elements of a unit, without the padding behind it.
  size_t size(int unit) const { return elements_of(tensors(unit)); }
  // Those of consecutive units, with the padding between them.
  size_t size(UnitRange units) const {
    return start(units.end - 1) + size(units.end - 1) - start(units.first);
  }
  TypedSpan parameters(int unit) { return all_parameters().subspan(start(unit), size(unit)); }
  TypedSpan gradients(int unit) { return all_gradients().subspan(start(unit), size(unit)); }
  // The parameters, or gradients, of consecutive units as one span, with the padding between them, which
  // stays zero.
  TypedSpan parameters(UnitRange units) { return all_parameters().subspan(start(units.first), size(units)); }
  TypedSpan gradients(UnitRange units) { return all_gradients().subspan(start(units.first), size(units)); }
  TypedSpan all_parameters() { return parameters_.span().subspan(0, elements_); }
  TypedSpan all_gradients() { return gradients_.span().subspan(0, elements_); }
  // Where a unit begins, in elements.
  size_t start(int unit) const { return starts_[unit - units_.first]; }

 private:
  UnitMemory() = default;

  UnitRange units_;
  std::vector<std::vector<TensorInfo>> tensors_;  // by unit
  std::vector<size_t> starts_;
  size_t elements_ = 0;
  TypedMemory parameters_;
  TypedMemory gradients_;
};

}  // namespace hdt::training
