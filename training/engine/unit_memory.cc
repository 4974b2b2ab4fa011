// unit_memory.cc: one allocation for all parameters of a stage, one for all gradients.
#include "training/engine/unit_memory.h"

#include <algorithm>
#include <utility>

namespace hdt::training {

namespace {

// Those of a compute, with the tied one.
std::vector<int> units_with_memory(const StageCompute& compute) {
  std::vector<int> units = compute.units().numbers();
  if (compute.has_tied_unit()) units.insert(units.begin(), kTiedUnit);
  return units;
}

}  // namespace

// Units start on a cache line, so that no two share one.
constexpr size_t kUnitAlignment = 64;

Result<UnitMemory> UnitMemory::create(const ModelChunks& chunks, Messenger& messenger, NumberType gradients) {
  const NumberType parameters = chunks[0].type();
  // Gradients are not smaller, so their units start on a line, too.
  const size_t alignment = kUnitAlignment / bytes_of(parameters);
  UnitMemory memory;
  // Places first, then memory, then the computes' views of it.
  const auto add_unit = [&](StageCompute& compute, int unit) {
    memory.units_.push_back(unit);
    memory.tensors_.push_back(compute.tensors(unit));
    memory.starts_.push_back(memory.elements_);
    memory.elements_ += (memory.size(unit) + alignment - 1) / alignment * alignment;
  };
  const auto with_tied = std::ranges::find_if(chunks, &StageCompute::has_tied_unit);
  if (with_tied != chunks.end()) add_unit(**with_tied, kTiedUnit);
  for (StageCompute* const compute : chunks) {
    for (int unit = compute->units().first; unit < compute->units().end; ++unit) add_unit(*compute, unit);
  }
  // A stage may have no parameters at all.
  for (const auto& [part, type] :
       {std::pair{&memory.parameters_, parameters}, std::pair{&memory.gradients_, gradients}}) {
    Result<TypedMemory> allocated = messenger.allocate(type, std::max(memory.elements_, alignment));
    if (!allocated.is_ok()) return allocated.status();
    *part = allocated.take();
  }
  for (StageCompute* const compute : chunks) {
    for (const int unit : units_with_memory(*compute))
      compute->bind(unit, memory.parameters(unit), memory.gradients(unit));
  }
  return memory;
}

}  // namespace hdt::training
