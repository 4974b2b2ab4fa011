// way_tuner.cc: a comparison of two ways that goes on for as long as the group lives. choose() spends
// some calls on trials of the other way; took() judges after each call.
#include "libclient/intranode/way_tuner.h"

#include <algorithm>
#include <bit>

namespace hdt::client {

namespace {

WayTuner::Way other(WayTuner::Way way) {
  return way == WayTuner::Way::kSlots ? WayTuner::Way::kKernel : WayTuner::Way::kSlots;
}

// By more than a sixteenth, which is more than calls differ anyway: each change costs some slow calls.
bool clearly_less(int64_t one, int64_t than) { return one < than - than / 16; }

}  // namespace

WayTuner::Record& WayTuner::record(collectives::Collective what, uint64_t bytes) {
  // The width of the number in bits: the same for all sizes from one power of two to the next.
  const auto size = std::min<size_t>(static_cast<size_t>(std::bit_width(bytes)), kSizes - 1);
  return records_[static_cast<size_t>(what)][size];
}

void WayTuner::Record::take(Way way) {
  taken = way;
  chosen = 0;
  until = kSoonest;
  trial_left = 0;
}

// A trial is kTrial calls of the other way in a row. In between, calls of the way that is taken are
// counted.
WayTuner::Way WayTuner::choose(collectives::Collective what, uint64_t bytes) {
  Record& known = record(what, bytes);
  if (known.trial_left == 0 && ++known.chosen > known.until) {
    known.chosen = 0;
    known.trial_left = kTrial;
  }
  if (known.trial_left == 0) return known.taken;
  --known.trial_left;
  return other(known.taken);
}

// 1. Note the time. Each way's row is broken by a call of the other way.
// 2. Judge only if this way had enough calls in a row, and the other one has been tried at all.
// 3. If this is the way that is taken and it has become clearly slower than the other, change. If it is
//    a trial and was clearly faster, change; otherwise the next trial comes later.
void WayTuner::took(collectives::Collective what, uint64_t bytes, Way way, int64_t nanoseconds) {
  Record& known = record(what, bytes);
  Times& times = known.of(way);
  Times& others = known.of(other(way));
  times.last[times.calls++ % times.last.size()] = nanoseconds;
  ++times.in_a_row;
  others.in_a_row = 0;
  if (!times.judged() || others.calls < kTrial) return;
  if (way == known.taken) {
    if (clearly_less(others.best(), times.best())) known.take(other(way));
  } else if (clearly_less(times.best(), others.best())) {
    known.take(way);
  } else {
    known.until = std::min(std::max(2 * known.until, kSoonest), kLatest);
  }
}

}  // namespace hdt::client
