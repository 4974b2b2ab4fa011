// unit_memory.cc: one allocation for all parameters of a stage, one for all gradients.
#include "training/engine/unit_memory.h"

#include <algorithm>

namespace hdt::training {

// In elements. Units start on a cache line, so that no two share one.
constexpr size_t kUnitAlignment = 64 / sizeof(float);

Result<UnitMemory> UnitMemory::create(const ModelChunks& chunks, Messenger& messenger) {
  UnitMemory memory;
  // Places first, then memory, then the computes' views of it.
  for (StageCompute* const compute : chunks) {
    for (int unit = compute->units().first; unit < compute->units().end; ++unit) {
      memory.units_.push_back(unit);
      memory.tensors_.push_back(compute->tensors(unit));
      memory.starts_.push_back(memory.elements_);
      memory.elements_ += (memory.size(unit) + kUnitAlignment - 1) / kUnitAlignment * kUnitAlignment;
    }
  }
  // A stage may have no parameters at all.
  for (FloatMemory* part : {&memory.parameters_, &memory.gradients_}) {
    Result<FloatMemory> allocated = messenger.allocate(std::max(memory.elements_, kUnitAlignment));
    if (!allocated.is_ok()) return allocated.status();
    *part = allocated.take();
  }
  for (StageCompute* const compute : chunks) {
    for (int unit = compute->units().first; unit < compute->units().end; ++unit)
      compute->bind(unit, memory.parameters(unit), memory.gradients(unit));
  }
  return memory;
}

}  // namespace hdt::training
