// foreign_copy.h: a value out of memory that another process may write at any time. It is copied once; what
// is checked afterwards is the copy, and the copy is what is used.
#pragma once

#include <cstring>
#include <type_traits>

namespace hdt {

// The compiler may not read the source again in place of the copy: the empty statement could have changed the
// copy.
template <typename T>
T foreign_copy(const T& source) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, &source, sizeof value);
  asm volatile("" : "+m"(value));
  return value;
}

}  // namespace hdt
