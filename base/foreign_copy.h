// foreign_copy.h: a value out of memory that another process may write at any time. The value is copied
// once. The caller checks the copy and uses the copy, so that the other process cannot change it between
// check and use.
#pragma once

#include <cstring>
#include <type_traits>

namespace hdt {

// Copies `source`. The empty asm statement stops the compiler from reading `source` again in place of
// the copy: it claims to change the copy, so copy and source can no longer be taken for equal. The copy
// is not atomic: a writer at the same time can make it a mixture of old and new bytes, which the
// caller's checks must withstand.
template <typename T>
T foreign_copy(const T& source) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, &source, sizeof value);
  asm volatile("" : "+m"(value));
  return value;
}

}  // namespace hdt
