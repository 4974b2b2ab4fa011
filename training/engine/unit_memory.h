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
  // Allocates for the units of `compute` and binds them. kSystem and others: what the messenger reports.
  static Result<UnitMemory> create(StageCompute& compute, Messenger& messenger);

  UnitRange units() const { return units_; }
  // The tensors of a unit, in the order in which they lie in memory.
  std::span<const TensorInfo> tensors(int unit) const { return tensors_[unit - units_.first]; }
  // The floats of a unit, without the padding behind it.
  size_t size(int unit) const { return elements_of(tensors(unit)); }
  // Those of consecutive units, with the padding between them.
  size_t size(UnitRange units) const {
    return start(units.end - 1) + size(units.end - 1) - start(units.first);
  }
  std::span<float> parameters(int unit) { return {parameters_.get() + start(unit), size(unit)}; }
  std::span<float> gradients(int unit) { return {gradients_.get() + start(unit), size(unit)}; }
  // The parameters, or gradients, of consecutive units as one span, with the padding between them, which
  // stays zero.
  std::span<float> parameters(UnitRange units) {
    return {parameters_.get() + start(units.first), size(units)};
  }
  std::span<float> gradients(UnitRange units) { return {gradients_.get() + start(units.first), size(units)}; }
  std::span<float> all_parameters() { return {parameters_.get(), elements_}; }
  std::span<float> all_gradients() { return {gradients_.get(), elements_}; }
  // Where a unit begins, in elements.
  size_t start(int unit) const { return starts_[unit - units_.first]; }

 private:
  UnitMemory() = default;

  UnitRange units_;
  std::vector<std::vector<TensorInfo>> tensors_;  // by unit
  std::vector<size_t> starts_;
  size_t elements_ = 0;
  FloatMemory parameters_;
  FloatMemory gradients_;
};

}  // namespace hdt::training
