// ticks.h: the cheapest clock there is: the processor's cycle counter where it runs at one rate on all
// cores, and the monotonic clock elsewhere. Reading it takes a few nanoseconds. Ticks are turned into
// time only when somebody asks: two moments that are known in both units give the scale.
#pragma once

#include <algorithm>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

#include "base/clock.h"
#include "base/saturate.h"

namespace hdt {

// Whether the counter runs at a constant rate in all power states: the "invariant TSC" bit of CPUID leaf
// 0x80000007 (Intel SDM volume 3, "Time-Stamp Counter"; AMD APM volume 3). All processes of a machine
// get the same answer, so they can share ticks.
inline bool cycle_counter_is_steady() {
#if defined(__x86_64__)
  constexpr unsigned kPowerLeaf = 0x80000007;
  constexpr unsigned kInvariantCounter = 1U << 8;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(kPowerLeaf, &a, &b, &c, &d) != 0 && (d & kInvariantCounter) != 0;
#else
  return false;
#endif
}

// Asked once, when the process or the library starts.
inline const bool kTicksAreCycles = cycle_counter_is_steady();

// The current tick: a cycle count, or now_ns(). The read is not ordered with other instructions, so two
// reads may be off by some tens of cycles.
inline uint64_t ticks() {
#if defined(__x86_64__)
  if (kTicksAreCycles) return __rdtsc();
#endif
  return static_cast<uint64_t>(now_ns());
}

// The same moment in both units. The two clocks are read one after the other; over seconds that error
// vanishes.
struct TickMoment {
  uint64_t ticks = 0;
  int64_t ns = 0;
  static TickMoment now() { return {hdt::ticks(), now_ns()}; }
};

// Turns ticks into the time of now_ns(), by the straight line through two moments. Ticks after `last`
// count as `last`, because ticks from other processes' memory are foreign. If both moments are the same,
// every tick is.
class TickScale {
 public:
  TickScale(const TickMoment& first, const TickMoment& last)
      : last_(last),
        ns_per_tick_(last.ticks > first.ticks ? static_cast<double>(last.ns - first.ns) /
                                                    static_cast<double>(last.ticks - first.ticks)
                                              : 0) {}
  // The time of a tick in ns, at least 1, as callers use 0 for "not yet".
  int64_t ns_at(uint64_t at) const {
    if (at >= last_.ticks) return last_.ns;
    const double before_ns = static_cast<double>(last_.ticks - at) * ns_per_tick_;
    return std::max<int64_t>(1, saturating_sub(last_.ns, saturating_int64(before_ns)));
  }

 private:
  TickMoment last_;
  double ns_per_tick_;
};

}  // namespace hdt
