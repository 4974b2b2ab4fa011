// failing_new.cc: see failing_new.h. A file of its own: where the compiler sees these functions and their
// callers, it warns of the pair.
#include "tests/unit/failed_allocations/failing_new.h"

#include <cstdlib>
#include <new>

namespace hdt::testing {

thread_local int failing_allocation = 0;

}  // namespace hdt::testing

void* operator new(size_t bytes) {
  int& failing = hdt::testing::failing_allocation;
  if (failing > 0 && --failing == 0) throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
// Those that std::stable_sort() makes. The address sanitizer would not forward them to the one above.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  int& failing = hdt::testing::failing_allocation;
  if (failing > 0 && --failing == 0) return nullptr;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
