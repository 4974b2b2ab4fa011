// spin.h: how a rank waits before it sleeps: some rounds at full speed, then some in which it gives its core
// to whoever needs it (where ranks, or daemons, share a core, that is the one it waits for).
#pragma once

#include <sched.h>
#include <unistd.h>

#include <atomic>

#include "ipc/segment.h"

namespace hdt::client {

inline constexpr int kQuickRounds = 200;
inline constexpr int kYieldingRounds = 200;

#if defined(__x86_64__)
inline void relax() { __builtin_ia32_pause(); }
#else
inline void relax() { std::atomic_signal_fence(std::memory_order_seq_cst); }
#endif

// Calls `look` until it returns true or the rounds are over. `look` costs nothing but cached loads while
// nothing changes.
template <typename Look>
bool spin(int quick_rounds, Look look) {
  for (int i = 0; i < quick_rounds; ++i) {
    if (look()) return true;
    relax();
  }
  for (int i = 0; i < kYieldingRounds; ++i) {
    if (look()) return true;
    ::sched_yield();
  }
  return false;
}

// Looking at full speed is for those who have a core each; between nodes the daemon's engine needs one, too.
inline int quick_rounds(const session::Layout& layout) {
  static const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  const long needed = layout.nodes == 1 ? layout.local_ranks : 2L * (layout.local_ranks + 1);
  return cores >= needed ? kQuickRounds : 0;
}

}  // namespace hdt::client
