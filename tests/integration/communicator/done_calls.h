// done_calls.h: counts the calls that hdtWhenDone makes, and waits for them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace hdt::testing {

// Calls that hdtWhenDone has promised, and how many have been made.
struct Calls {
  std::mutex mutex;
  std::condition_variable changed;
  size_t made = 0;
  static void count(void* calls) {
    auto* const self = static_cast<Calls*>(calls);
    const std::lock_guard lock(self->mutex);
    ++self->made;
    self->changed.notify_all();
  }
  // False: fewer after that time.
  bool wait_for(size_t expected, std::chrono::seconds at_most = std::chrono::seconds(30)) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, at_most, [&] { return made >= expected; });
  }
  size_t now() {
    const std::lock_guard lock(mutex);
    return made;
  }
};

}  // namespace hdt::testing
