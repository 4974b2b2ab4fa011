// way_tuner.h: whether a call on ordinary memory in a group of one node goes faster through the kernel (each reads and
// writes the others' buffers) or through the node's slots (copied, piece by piece). It depends on the machine, its load and
// the size, so it is measured on the calls themselves: for each collective and power of two of bytes both ways are tried a
// few times, then the one whose best time was less is taken, until after many calls both are tried anew. One rank of the
// node measures and decides for all (session/call.h: Exposure). Both ways give the same bits.
#pragma once

#include <array>
#include <cstdint>

#include "collectives/types.h"

namespace hdt::client {

class WayTuner {
 public:
  enum class Way : uint8_t { kSlots = 0, kKernel = 1 };
  static constexpr int kWays = 2;
  static constexpr uint32_t kTrials = 4;    // of each way before one is preferred
  static constexpr uint32_t kCalls = 1024;  // after so many all is forgotten

  // The way of the next call.
  Way choose(collectives::Collective what, uint64_t bytes) const;
  // A call that went this way took so long, from when all ranks had posted it.
  void took(collectives::Collective what, uint64_t bytes, Way way, int64_t nanoseconds);

 private:
  static constexpr int kSizes = 64;
  struct Record {
    uint32_t calls = 0;
    std::array<uint32_t, kWays> trials{};
    std::array<int64_t, kWays> best{INT64_MAX, INT64_MAX};
  };
  static size_t size_of(uint64_t bytes);
  std::array<std::array<Record, kSizes>, collectives::kCollectiveCount> records_{};
};

}  // namespace hdt::client
