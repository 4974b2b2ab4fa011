// failing_new.cc: see failing_new.h. A file of its own: where the compiler sees these functions and their
// callers, it warns of the pair.
#include "tests/unit/failed_allocations/failing_new.h"

#include <cstdlib>
#include <new>

namespace hdt::testing {

thread_local int failing_allocation = 0;

}  // namespace hdt::testing

// std::stable_sort() calls this one. It is replaced, too, because the address sanitizer has its own.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  int& failing = hdt::testing::failing_allocation;
  if (failing > 0 && --failing == 0) return nullptr;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void* operator new(size_t bytes) {
  if (void* const memory = ::operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
