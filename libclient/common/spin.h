// spin.h: how a rank waits before it sleeps: some rounds at full speed, and then some in which it gives
// its core to a thread that needs it. If ranks or daemons share a core, that thread is the one for which
// it waits. docs/notes/performance-2026.md has the measurements.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <atomic>

#include "base/patience.h"
#include "ipc/segment.h"

namespace hdt::client {

// Looks of each kind before a waiter goes to sleep: some tens of microseconds together.
inline constexpr int kQuickRounds = 200;
inline constexpr int kYieldingRounds = 200;

// A short pause between two looks. On x86 it is the PAUSE instruction, which is meant for such loops: it
// leaves more of the core to its other hardware thread. Elsewhere it only keeps the compiler from
// merging two looks.
#if defined(__x86_64__)
inline void relax() { __builtin_ia32_pause(); }
#else
inline void relax() { std::atomic_signal_fence(std::memory_order_seq_cst); }
#endif

// Calls `look` until it returns true or the rounds are over, and returns whether it did. While nothing
// changes, a look should cost no more than some loads of cached lines. `give_way` gives up the core between
// two looks; it returns false to end the rounds.
template <typename Look, typename GiveWay>
bool spin(int quick_rounds, Look look, GiveWay give_way) {
  for (int i = 0; i < quick_rounds; ++i) {
    if (look()) return true;
    relax();
  }
  for (int i = 0; i < kYieldingRounds; ++i) {
    if (look()) return true;
    if (!give_way()) return false;
  }
  return false;
}

// For all rounds, whoever else wants the core.
template <typename Look>
bool spin(int quick_rounds, Look look) {
  return spin(quick_rounds, look, [] { return ::sched_yield() == 0; });
}

// How often a rank that waits for other nodes may lose its core in one wait. Two nodes of one rank each, on a
// core each, lose it twice for 8 bytes and four times for 64 KiB.
inline constexpr int kMostLosses = 8;

// For as long as it is worth it on this thread's core (patience.h).
template <typename Look>
bool spin_patiently(int quick_rounds, Look look) {
  static thread_local constinit Patience patience(kMostLosses);
  patience.begin_wait();
  return spin(quick_rounds, look, [] { return patience.give_way(); });
}

// The number of rounds at full speed for a group of this shape. It is 0 unless every rank has a core to
// itself. Between nodes the daemon's engine needs one as well, and twice as many cores are demanded.
inline int quick_rounds(const ipc::Layout& layout) {
  static const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  const long needed = layout.nodes == 1 ? layout.local_ranks : 2L * (layout.local_ranks + 1);
  return cores >= needed ? kQuickRounds : 0;
}

}  // namespace hdt::client
