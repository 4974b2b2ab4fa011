// unit_memory.cc: one allocation for all parameters of a stage, one for all gradients.
#include "training/engine/unit_memory.h"

#include <algorithm>
#include <utility>

namespace hdt::training {

// Units start on a cache line, so that no two share one.
constexpr size_t kUnitAlignment = 64;

Result<UnitMemory> UnitMemory::create(StageCompute& compute, Messenger& messenger, NumberType gradients) {
  // Gradients are not smaller, so their units start on a line, too.
  const size_t alignment = kUnitAlignment / bytes_of(compute.type());
  UnitMemory memory;
  memory.units_ = compute.units();
  // Places first, then memory, then the compute's views of it.
  for (int unit = memory.units_.first; unit < memory.units_.end; ++unit) {
    memory.tensors_.push_back(compute.tensors(unit));
    memory.starts_.push_back(memory.elements_);
    memory.elements_ += (memory.size(unit) + alignment - 1) / alignment * alignment;
  }
  // A stage may have no parameters at all.
  for (const auto& [part, type] :
       {std::pair{&memory.parameters_, compute.type()}, std::pair{&memory.gradients_, gradients}}) {
    Result<TypedMemory> allocated = messenger.allocate(type, std::max(memory.elements_, alignment));
    if (!allocated.is_ok()) return allocated.status();
    *part = allocated.take();
  }
  for (int unit = memory.units_.first; unit < memory.units_.end; ++unit) {
    compute.bind(unit, memory.parameters(unit), memory.gradients(unit));
  }
  return memory;
}

}  // namespace hdt::training
