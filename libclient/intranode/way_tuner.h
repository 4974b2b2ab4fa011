// way_tuner.h: whether a call on ordinary memory in a group of one node goes faster through the kernel (each
// reads and writes the others' buffers) or through the node's slots (copied, piece by piece). It depends on
// the machine, its load and the size, and it changes while a job runs (docs/design/performance.md: copies
// between two cores at two speeds, for dozens of calls on end). So it is measured on the calls themselves:
// for each collective and power of two of bytes the way whose last calls took less is taken. A way that
// becomes slow is left soon; the other is tried again after some calls, the more the longer nothing has
// changed. One rank of the node measures and decides for all (ipc/call.h: Exposure). Both ways give the same
// bits.
#pragma once

#include <array>
#include <cstdint>

#include "collectives/types.h"

namespace hdt::client {

class WayTuner {
 public:
  enum class Way : uint8_t { kSlots = 0, kKernel = 1 };
  static constexpr int kWays = 2;
  // Calls in a row before a way is judged: the first ones find the buffers where the other way has left them
  // in the caches, and were seen to take up to half as much again.
  static constexpr uint32_t kTrial = 4;
  // Calls between two trials of the way that is not taken. Doubled by each trial that changes nothing.
  static constexpr uint32_t kSoonest = 32;
  static constexpr uint32_t kLatest = 1024;

  // The way of the next call.
  Way choose(collectives::Collective what, uint64_t bytes);
  // A call that went this way took so long, from when all ranks had posted it.
  void took(collectives::Collective what, uint64_t bytes, Way way, int64_t nanoseconds);

 private:
  static constexpr int kSizes = 64;
  // The last calls of a way that count: the faster one, so that one slow call does not decide.
  struct Times {
    uint64_t calls = 0;
    uint32_t in_a_row = 0;
    std::array<int64_t, 2> last{};
    bool judged() const { return in_a_row >= kTrial; }
    int64_t best() const { return last[0] < last[1] ? last[0] : last[1]; }
  };
  struct Record {
    std::array<Times, kWays> times;
    Way taken = Way::kSlots;
    uint32_t chosen = 0;      // of the way that is taken, since the last trial of the other
    uint32_t until = kTrial;  // so many, then the other is tried
    uint32_t trial_left = 0;  // calls of that still to be chosen
    Times& of(Way way) { return times[static_cast<size_t>(way)]; }
    void take(Way way);
  };
  Record& record(collectives::Collective what, uint64_t bytes);
  std::array<std::array<Record, kSizes>, collectives::kCollectiveCount> records_{};
};

}  // namespace hdt::client
