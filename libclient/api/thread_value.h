// thread_value.h: a value of each thread that outlives the thread's thread_local objects. Static
// destructors of a program run after the main thread's thread_local objects were destroyed, and they may
// call HDT: a destructor of a static object may call hdtCommDestroy.
#pragma once

#include "base/fork_mark.h"

namespace hdt::client {

// The calling thread's value; the first use makes it. `Tag` tells apart values of one type. After the
// thread's objects were destroyed, a new value is made, which is never freed: that can only happen at
// the end of the process.
template <typename T, typename Tag>
T& thread_value() {
  // A plain pointer has no destructor, so it can be read until the thread is gone.
  thread_local T* value = nullptr;  // no destructor, so it can be read until the thread is gone
  struct End {
    ~End() {
      // In a copy of the process another thread's use may have been under way (base/fork_mark.h).
      if (forked()) return;
      delete value;
      value = nullptr;
    }
  };
  if (value == nullptr) {
    value = new T();
    thread_local const End end;
    (void)end;
  }
  return *value;
}

}  // namespace hdt::client
