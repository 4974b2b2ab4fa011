// stream.h: the same bytes each way all the time, several exchanges under way at once, compared at the end
// only: a load that always has something to send, even where one way is slower for a while, and leaves the
// processors to others.
#pragma once

#include <array>
#include <vector>

#include "base/clock.h"
#include "bench/rails/buffers.h"

namespace hdt::rails {

class Stream {
 public:
  Stream(hdtComm_t group, int rank, size_t count) : group_(group), peer_(1 - rank), theirs_(count) {
    for (size_t slot = 0; slot < kUnderWay; ++slot) {
      slots_[slot].buffers = shared_buffers(count);
      fill(slots_[slot].buffers.mine, 0, rank, false);
    }
    fill(theirs_, 0, peer_, false);
  }

  // Until this rank or the other wants to end. Both see in the same call that either does, and begin no
  // further ones, so that both have made the same calls. False: one failed.
  bool run(const Deadline& until) {
    bool last = false;
    for (; calls < static_cast<long>(kUnderWay); ++calls) {
      if (!begin(calls, false)) return false;
    }
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

  long calls = 0;
  long wrong = 0;

 private:
  static constexpr size_t kUnderWay = 4;
  struct Slot {
    Buffers buffers;
    SendRecv exchange;
  };

  bool begin(long call, bool last) {
    Slot& slot = slots_[call % kUnderWay];
    slot.buffers.mine.front() = last ? 1.0F : 0.0F;
    return slot.exchange.begin(slot.buffers, peer_, group_);
  }

  hdtComm_t group_;
  int peer_;
  std::array<Slot, kUnderWay> slots_;
  std::vector<float> theirs_;
};

}  // namespace hdt::rails
