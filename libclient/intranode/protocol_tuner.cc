// protocol_tuner.cc: a comparison of two protocols that goes on for as long as the group lives. choose()
// spends some calls on trials of the other protocol; took() judges after each call.
#include "libclient/intranode/protocol_tuner.h"

#include <algorithm>
#include <bit>

namespace hdt::client {

namespace {

ProtocolTuner::Protocol other(ProtocolTuner::Protocol protocol) {
  return protocol == ProtocolTuner::Protocol::kSlots ? ProtocolTuner::Protocol::kKernel
                                                     : ProtocolTuner::Protocol::kSlots;
}

// By more than a sixteenth, which is more than calls differ anyway: each change costs some slow calls.
bool clearly_less(int64_t one, int64_t than) { return one < than - than / 16; }

}  // namespace

ProtocolTuner::Record& ProtocolTuner::record(collectives::Collective what, uint64_t bytes) {
  // The width of the number in bits: the same for all sizes from one power of two to the next.
  const auto size = std::min<size_t>(static_cast<size_t>(std::bit_width(bytes)), kSizes - 1);
  return records_[static_cast<size_t>(what)][size];
}

void ProtocolTuner::Record::take(Protocol protocol) {
  taken = protocol;
  chosen = 0;
  until = kSoonest;
  trial_left = 0;
}

// A trial is kTrial calls of the other protocol in a row. In between, calls of the protocol that is taken are
// counted.
ProtocolTuner::Protocol ProtocolTuner::choose(collectives::Collective what, uint64_t bytes) {
  Record& known = record(what, bytes);
  if (known.trial_left == 0 && ++known.chosen > known.until) {
    known.chosen = 0;
    known.trial_left = kTrial;
  }
  if (known.trial_left == 0) return known.taken;
  --known.trial_left;
  return other(known.taken);
}

// 1. Note the time. Each protocol's row is broken by a call of the other protocol.
// 2. Judge only if this protocol had enough calls in a row, and the other one has been tried at all.
// 3. If this is the protocol that is taken and it has become clearly slower than the other, change. If it is
//    a trial and was clearly faster, change; otherwise the next trial comes later.
void ProtocolTuner::took(collectives::Collective what, uint64_t bytes, Protocol protocol,
                         int64_t nanoseconds) {
  Record& known = record(what, bytes);
  Times& times = known.of(protocol);
  Times& others = known.of(other(protocol));
  times.last[times.calls++ % times.last.size()] = nanoseconds;
  ++times.in_a_row;
  others.in_a_row = 0;
  if (!times.judged() || others.calls < kTrial) return;
  if (protocol == known.taken) {
    if (clearly_less(others.best(), times.best())) known.take(other(protocol));
  } else if (clearly_less(times.best(), others.best())) {
    known.take(protocol);
  } else {
    known.until = std::min(std::max(2 * known.until, kSoonest), kLatest);
  }
}

}  // namespace hdt::client
