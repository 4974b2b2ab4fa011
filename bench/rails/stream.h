// stream.h: the same bytes in both directions all the time, with several exchanges under way, and
// compared only at the end. This load always has something to send, even if one direction is slower for
// a while, and leaves the processors to others.
#pragma once

#include <array>
#include <vector>

#include "base/clock.h"
#include "bench/rails/buffers.h"

namespace hdt::rails {

// One rank's side of the stream. Used by one thread.
class Stream {
 public:
  Stream(hdtComm_t group, int rank, size_t count) : group_(group), peer_(1 - rank), theirs_(count) {
    for (size_t slot = 0; slot < kUnderWay; ++slot) {
      slots_[slot].buffers = shared_buffers(count);
      fill(slots_[slot].buffers.mine, 0, rank, false);
    }
    fill(theirs_, 0, peer_, false);
  }

  // Runs until this rank or the other one wants to end. Both see in the same call that either does, and
  // begin no further calls, so both have made the same calls. False: a call has failed.
  bool run(const Deadline& until) {
    bool last = false;
    // 1. Fill the slots.
    for (; calls < static_cast<long>(kUnderWay); ++calls) {
      if (!begin(calls, false)) return false;
    }
    // 2. Wait for the calls in their order, and begin a new one in each slot that is free, until either
    //    rank wants to end. Then only the calls under way are waited for, and compared.
    for (long call = 0; call < calls; ++call) {
      Slot& slot = slots_[call % kUnderWay];
      if (!slot.exchange.wait()) return false;
      last = last || slot.buffers.mine.front() != 0.0F || slot.buffers.result.front() != 0.0F;
      if (last) {
        if (!matches(slot.buffers.result, theirs_)) ++wrong;
      } else if (!begin(calls++, until.expired())) {
        return false;
      }
    }
    return true;
  }

  // Exchanges that were begun, and those among the last ones whose result was wrong.
  long calls = 0;
  long wrong = 0;

 private:
  // Exchanges under way at the same time.
  static constexpr size_t kUnderWay = 4;
  // One of the exchanges under way, with buffers of its own.
  struct Slot {
    Buffers buffers;
    SendRecv exchange;
  };

  // The first element carries the wish to end.
  bool begin(long call, bool last) {
    Slot& slot = slots_[call % kUnderWay];
    slot.buffers.mine.front() = last ? 1.0F : 0.0F;
    return slot.exchange.begin(slot.buffers, peer_, group_);
  }

  hdtComm_t group_;
  int peer_;
  std::array<Slot, kUnderWay> slots_;
  // The other rank sends this in every call.
  std::vector<float> theirs_;
};

}  // namespace hdt::rails
