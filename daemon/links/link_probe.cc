#include "daemon/links/link_probe.h"

#include <algorithm>
#include <utility>

#include "base/median.h"

namespace hdt::daemon {

namespace {

// The limits in ms: of the measurement once both ends have begun, ...
constexpr int64_t kProbeMs = 3'000;
// ... and of waiting for the peer, which may have other links to measure before this one.
constexpr int64_t kMeetMs = 30'000;
// round trips, of which the median counts
constexpr size_t kTrips = 33;
// As many bursts are under way as a large call is cut into chunks.
constexpr uint64_t kInFlight = 4;
// The first bursts of a run do not count: the connection's window is still small.
constexpr uint64_t kFirstBursts = 32;
constexpr uint64_t kCountedBursts = 16;
static_assert(2 * (kFirstBursts + kCountedBursts) <= ProbeMemory::kPlaces);
// On a slow link each part of a run, the bursts that do not count and those that do, ends after this
// time with as many bursts as there were time for.
constexpr int64_t kPartNs = 200'000'000;

}  // namespace

// A probe whose end knows the rates counts as begun: it answers, and sends bursts if the peer measures, but
// it never asks for a measurement.
LinkProbe::LinkProbe(transport::Link& link, const ProbeMemory& memory, const transport::RegionKey& landing,
                     const ipc::LinkRates& known, bool first)
    : link_(link),
      memory_(memory),
      landing_(landing),
      rates_(known),
      first_(first),
      measuring_(!known.measured()),
      begun_(!measuring_) {
  if (begun_) tell(ProbeMessage::Kind::kKnown);
}

// From here on there is a deadline.
void LinkProbe::begin() {
  if (std::exchange(begun_, true)) return;
  until_ = Deadline::after_ms(kMeetMs);
  tell(ProbeMessage::Kind::kHere);
  meet();
}

// Never repeated: a measurement that has lost a message ends at its deadline.
void LinkProbe::tell(ProbeMessage::Kind kind) { (void)link_.send(encode(ProbeMessage{0, kind, landing_})); }

// Never 0, as it is divided by.
int64_t LinkProbe::took_ns() const { return std::max<int64_t>(1, now_ns() - started_ns_); }

// The form of the message is checked (decode_engine_message()). A message that does not fit the phase has no
// effect, so a peer that breaks the protocol only spoils the measurement, which then ends at its deadline.
void LinkProbe::on_message(const ProbeMessage& note) {
  switch (note.kind) {
    case ProbeMessage::Kind::kHere:
    case ProbeMessage::Kind::kKnown:
      // Only the first message counts: a key cannot be changed under way.
      if (!peers_) peers_ = note;
      return meet();
    case ProbeMessage::Kind::kPing:
      return tell(ProbeMessage::Kind::kPong);
    case ProbeMessage::Kind::kPong:
      return on_pong();
    case ProbeMessage::Kind::kLanded:
      return on_landed();
    case ProbeMessage::Kind::kTurn:
      return on_turn();
  }
}

// Both sides must be there: this end has begun, and the peer's message with the key of its memory has come.
void LinkProbe::meet() {
  if (phase_ != Phase::kMeeting || !begun_ || !peers_) return;
  // If both ends know the rates, nothing is measured. If only the peer does not, this end takes part.
  const bool both_know = !measuring_ && peers_->kind == ProbeMessage::Kind::kKnown;
  phase_ = both_know ? Phase::kOver : Phase::kTrips;
  if (both_know) return;
  until_ = Deadline::after_ms(kProbeMs);
  ping();
}

// One round trip at a time, so that each of them is that of an idle link.
void LinkProbe::ping() {
  started_ns_ = now_ns();
  tell(ProbeMessage::Kind::kPing);
}

// One that comes outside of the trips is ignored: the peer may send as many as it likes.
void LinkProbe::on_pong() {
  if (phase_ != Phase::kTrips) return;
  // Both ends make their trips at the same time; the first end goes on with its bursts at once.
  trips_ns_.push_back(static_cast<double>(took_ns()));
  if (trips_ns_.size() < kTrips) return ping();
  phase_ = Phase::kWaiting;
  // The second end may have got its turn before its own trips were over.
  if (first_ || turn_) send_bursts(Phase::kAlone);
}

// A kTurn gives the second end its first run. The first end has had its run before the peer sends kTurn,
// so for it the run with both begins.
void LinkProbe::on_turn() {
  turn_ = true;
  if (phase_ == Phase::kWaiting) send_bursts(first_ ? Phase::kBoth : Phase::kAlone);
}

// As many at once as may be under way; on_landed() sends the others one by one.
void LinkProbe::send_bursts(Phase phase) {
  phase_ = phase;
  sent_ = landed_ = counted_from_ = 0;
  started_ns_ = now_ns();
  while (sent_ < kInFlight) send_burst();
}

// From memory that holds nothing of a user's, into memory that nobody reads.
void LinkProbe::send_burst() {
  // The burst must not land where the peer's own bursts come from at the same time, so the landing is
  // half of the memory away.
  const size_t landing = ProbeMemory::offset(place_ + ProbeMemory::kPlaces / 2);
  const size_t source = ProbeMemory::offset(place_++);
  ++sent_;
  (void)link_.write({memory_.bytes() + source, ProbeMemory::kBurstBytes, peers_->landing, landing,
                     encode(ProbeFrame{0}), kToken});
}

// The peer knows from this message that its burst is in memory.
void LinkProbe::on_burst() { tell(ProbeMessage::Kind::kLanded); }

// A run has two parts: kFirstBursts bursts that do not count, then kCountedBursts that do. Either part ends
// early after kPartNs.
void LinkProbe::on_landed() {
  // A message that fits no burst under way is ignored.
  if ((phase_ != Phase::kAlone && phase_ != Phase::kBoth) || landed_ == sent_) return;
  ++landed_;
  const bool late = took_ns() > kPartNs;
  // Before counting: keep the number of bursts under way, until enough have landed.
  if (counted_from_ == 0) {
    if (landed_ == kFirstBursts || late) {
      counted_from_ = landed_;
      started_ns_ = now_ns();
    }
    return send_burst();
  }
  // Counting: send until enough are sent, then wait for the last ones.
  if (!late && sent_ < counted_from_ + kCountedBursts) return send_burst();
  if (landed_ == sent_) on_all_landed();
}

// The bytes of the bursts that count, over the time since counting began.
void LinkProbe::on_all_landed() {
  const auto bytes = static_cast<double>((landed_ - counted_from_) * ProbeMemory::kBurstBytes);
  const double rate = bytes * kNsPerSecond / static_cast<double>(took_ns());
  const uint64_t bytes_s = static_cast<uint64_t>(std::max(1.0, rate));
  // After the run alone: the turn goes to the other end. The second end begins the run with both at
  // once.
  if (phase_ == Phase::kAlone) {
    alone_bytes_s_ = bytes_s;
    phase_ = Phase::kWaiting;
    tell(ProbeMessage::Kind::kTurn);
    if (!first_) send_bursts(Phase::kBoth);
  } else {
    phase_ = Phase::kOver;
    // An end that knew its rates before keeps them.
    if (!std::exchange(measuring_, false)) return;
    // One way: half a round trip.
    const double latency_ns = std::max(1.0, median(trips_ns_) / 2);
    rates_ = {static_cast<uint64_t>(latency_ns), alone_bytes_s_, bytes_s};
  }
}

}  // namespace hdt::daemon
