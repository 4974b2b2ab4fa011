// unit_memory.h: the flat parameters and gradients of a stage's units, in the order of units. Two allocations
// hold everything, so that reductions, clipping and the optimizer work on plain memory and copy nothing.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "base/status.h"
#include "training/engine/compute.h"
#include "training/engine/messenger.h"
#include "training/engine/model_chunks.h"

namespace hdt::training {

// Owned by the trainer; the computes' tensors are views of it.
class UnitMemory {
 public:
  // Allocates for the units of all chunks, which are in rising order, and binds them. Parameters are of the
  // computes' type, which is one, gradients of that one or fp32. kSystem and others: what the messenger
  // reports.
  static Result<UnitMemory> create(const ModelChunks& chunks, Messenger& messenger,
                                   NumberType gradients = NumberType::kFloat32);

  // In rising order, with gaps where the rank has several chunks. The tied unit is first, if it is here.
  std::span<const int> units() const { return units_; }
  bool contains(int unit) const { return std::ranges::binary_search(units_, unit); }
  // The tensors of a unit, in the order in which they lie in memory.
  std::span<const TensorInfo> tensors(int unit) const { return tensors_[index_of(unit)]; }
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
  size_t start(int unit) const { return starts_[index_of(unit)]; }

 private:
  UnitMemory() = default;

  // Only for a unit that is here.
  size_t index_of(int unit) const {
    return static_cast<size_t>(std::ranges::lower_bound(units_, unit) - units_.begin());
  }

  std::vector<int> units_;
  std::vector<std::vector<TensorInfo>> tensors_;  // by unit
  std::vector<size_t> starts_;
  size_t elements_ = 0;
  TypedMemory parameters_;
  TypedMemory gradients_;
};

}  // namespace hdt::training
