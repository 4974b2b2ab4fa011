// protocol_tuner.h: whether a call on ordinary memory in a group of one node goes faster through the kernel
// (each rank reads and writes the others' buffers) or through the node's slots (copied, chunk by chunk).
// That depends on the machine, its load and the size, and it changes while a job runs
// (docs/design/performance.md: copies between two cores at two speeds, for dozens of calls on end). So
// it is measured on the calls themselves: for each collective and power of two of bytes, the protocol whose
// latest calls took less is taken. A protocol that becomes slow is left soon. The other one is tried again
// after some calls, after more of them the longer nothing has changed.
//
// One rank of the node measures and decides for all (by_kernel in ipc/call_descriptor.h), since all must take
// the same protocol. Both protocols give the same bits.
#pragma once

#include <array>
#include <cstdint>

#include "collectives/types.h"

namespace hdt::client {

// Owned by the IntranodeQueue; used by the node's first rank, with the communicator's lock held. The other
// ranks have one that they do not use.
class ProtocolTuner {
 public:
  enum class Protocol : uint8_t { kSlots = 0, kKernel = 1 };
  static constexpr int kProtocols = 2;
  // Calls in a row before a protocol is judged. The first ones find the buffers where the other protocol has
  // left them in the caches, and were seen to take up to half as much again.
  static constexpr uint32_t kTrial = 4;
  // Calls between two trials of the protocol that is not taken: kSoonest at first, doubled by each trial that
  // changes nothing, up to kLatest.
  static constexpr uint32_t kSoonest = 32;
  static constexpr uint32_t kLatest = 1024;

  // The protocol of the next call of this collective and size. To be called once for each call.
  Protocol choose(collectives::Collective what, uint64_t bytes);
  // A call that went this protocol took so many nanoseconds, from when all ranks had posted it. Calls that
  // went neither protocol are not reported.
  void took(collectives::Collective what, uint64_t bytes, Protocol protocol, int64_t nanoseconds);

 private:
  // One record for each power of two.
  static constexpr int kSizes = 64;
  // The latest two calls of a protocol. The faster of them counts, so that one slow call does not decide.
  struct Times {
    // All calls of this protocol so far.
    uint64_t calls = 0;
    // Calls since the other protocol was used last.
    uint32_t in_a_row = 0;
    // In ns.
    std::array<int64_t, 2> last{};
    bool judged() const { return in_a_row >= kTrial; }
    int64_t best() const { return last[0] < last[1] ? last[0] : last[1]; }
  };
  // The state for one collective and size.
  struct Record {
    std::array<Times, kProtocols> times;
    // The protocol of calls that are no trial.
    Protocol taken = Protocol::kSlots;
    // Calls of that protocol since the last trial of the other.
    uint32_t chosen = 0;
    // After so many, the other is tried. The first trial comes soon, as nothing is known of the other
    // protocol.
    uint32_t until = kTrial;
    // Calls of a trial that are still to be chosen.
    uint32_t trial_left = 0;
    Times& of(Protocol protocol) { return times[static_cast<size_t>(protocol)]; }
    // Changes the protocol, and begins to count anew.
    void take(Protocol protocol);
  };
  Record& record(collectives::Collective what, uint64_t bytes);
  std::array<std::array<Record, kSizes>, collectives::kCollectiveCount> records_{};
};

}  // namespace hdt::client
