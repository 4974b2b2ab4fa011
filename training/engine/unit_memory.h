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
  UnitSize size(int unit) const { return sizes_[unit - units_.first]; }
  std::span<float> parameters(int unit) { return {parameters_.get() + start(unit), size(unit).elements}; }
  std::span<float> gradients(int unit) { return {gradients_.get() + start(unit), size(unit).elements}; }
  // The gradients of consecutive units as one span, with the padding between them, which stays zero.
  std::span<float> gradients(UnitRange units);
  std::span<float> all_parameters() { return {parameters_.get(), elements_}; }
  std::span<float> all_gradients() { return {gradients_.get(), elements_}; }
  // Where a unit begins, in elements.
  size_t start(int unit) const { return starts_[unit - units_.first]; }

 private:
  UnitMemory() = default;

  UnitRange units_;
  std::vector<UnitSize> sizes_;
  std::vector<size_t> starts_;
  size_t elements_ = 0;
  FloatMemory parameters_;
  FloatMemory gradients_;
};

}  // namespace hdt::training
