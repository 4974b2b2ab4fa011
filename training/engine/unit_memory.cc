// unit_memory.cc: one allocation for all parameters of a stage, one for all gradients.
#include "training/engine/unit_memory.h"

#include <algorithm>
#include <utility>

namespace hdt::training {

// Units start on a cache line, so that no two share one.
constexpr size_t kUnitAlignment = 64;

Result<UnitMemory> UnitMemory::create(const ModelChunks& chunks, Messenger& messenger, NumberType gradients) {
  const NumberType parameters = chunks[0].type();
  // Gradients are not smaller, so their units start on a line, too.
  const size_t alignment = kUnitAlignment / bytes_of(parameters);
  UnitMemory memory;
  // Places first, then memory, then the computes' views of it.
  for (StageCompute* const compute : chunks) {
    for (int unit = compute->units().first; unit < compute->units().end; ++unit) {
      memory.units_.push_back(unit);
      memory.tensors_.push_back(compute->tensors(unit));
      memory.starts_.push_back(memory.elements_);
      memory.elements_ += (memory.size(unit) + alignment - 1) / alignment * alignment;
    }
  }
  // A stage may have no parameters at all.
  for (const auto& [part, type] :
       {std::pair{&memory.parameters_, parameters}, std::pair{&memory.gradients_, gradients}}) {
    Result<TypedMemory> allocated = messenger.allocate(type, std::max(memory.elements_, alignment));
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
