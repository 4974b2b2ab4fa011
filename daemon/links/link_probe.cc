#include "daemon/links/link_probe.h"

#include <algorithm>
#include <utility>

#include "base/median.h"

namespace hdt::daemon {

namespace {

constexpr int64_t kProbeMs = 3'000;
// The peer may have other links to measure before this one.
constexpr int64_t kMeetMs = 30'000;
constexpr size_t kTrips = 33;
// As many bursts are under way as a call has pieces.
constexpr uint64_t kInFlight = 4;
// The first ones find the connection's window still small.
constexpr uint64_t kFirstBursts = 32;
constexpr uint64_t kCountedBursts = 16;
static_assert(2 * (kFirstBursts + kCountedBursts) <= ProbeMemory::kPlaces);
// On a slow link fewer are enough, and all that there is time for.
constexpr int64_t kPartNs = 200'000'000;

}  // namespace

LinkProbe::LinkProbe(transport::Link& link, const ProbeMemory& memory, const transport::RegionKey& landing,
                     const session::LinkRates& known, bool first)
    : link_(link),
      memory_(memory),
      landing_(landing),
      rates_(known),
      first_(first),
      measuring_(!known.measured()),
      begun_(!measuring_) {
  if (begun_) tell(ProbeNote::Kind::kKnown);
}

void LinkProbe::begin() {
  if (std::exchange(begun_, true)) return;
  until_ = Deadline::after_ms(kMeetMs);
  tell(ProbeNote::Kind::kHere);
  meet();
}

void LinkProbe::tell(ProbeNote::Kind kind) { (void)link_.send(encode(ProbeNote{0, kind, landing_})); }

int64_t LinkProbe::took_ns() const { return std::max<int64_t>(1, now_ns() - started_ns_); }

void LinkProbe::on_note(const ProbeNote& note) {
  switch (note.kind) {
    case ProbeNote::Kind::kHere:
    case ProbeNote::Kind::kKnown:
      if (!peers_) peers_ = note;
      return meet();
    case ProbeNote::Kind::kPing:
      return tell(ProbeNote::Kind::kPong);
    case ProbeNote::Kind::kPong:
      return on_pong();
    case ProbeNote::Kind::kLanded:
      return on_landed();
    case ProbeNote::Kind::kTurn:
      return on_turn();
  }
}

void LinkProbe::meet() {
  if (phase_ != Phase::kMeeting || !begun_ || !peers_) return;
  const bool both_know = !measuring_ && peers_->kind == ProbeNote::Kind::kKnown;
  phase_ = both_know ? Phase::kOver : Phase::kTrips;
  if (both_know) return;
  until_ = Deadline::after_ms(kProbeMs);
  ping();
}

void LinkProbe::ping() {
  started_ns_ = now_ns();
  tell(ProbeNote::Kind::kPing);
}

void LinkProbe::on_pong() {
  if (phase_ != Phase::kTrips) return;
  trips_ns_.push_back(static_cast<double>(took_ns()));
  if (trips_ns_.size() < kTrips) return ping();
  phase_ = Phase::kWaiting;
  if (first_ || turn_) send_bursts(Phase::kAlone);
}

// The first end has had its bursts before the peer gives it the turn.
void LinkProbe::on_turn() {
  turn_ = true;
  if (phase_ == Phase::kWaiting) send_bursts(first_ ? Phase::kBoth : Phase::kAlone);
}

void LinkProbe::send_bursts(Phase phase) {
  phase_ = phase;
  sent_ = landed_ = counted_from_ = 0;
  started_ns_ = now_ns();
  while (sent_ < kInFlight) send_burst();
}

void LinkProbe::send_burst() {
  // Not where the peer's own bursts come from at the same time.
  const size_t landing = ProbeMemory::offset(place_ + ProbeMemory::kPlaces / 2);
  const size_t source = ProbeMemory::offset(place_++);
  ++sent_;
  (void)link_.write({memory_.bytes() + source, ProbeMemory::kBurstBytes, peers_->landing, landing,
                     encode(ProbeFrame{0}), kToken});
}

void LinkProbe::on_burst() { tell(ProbeNote::Kind::kLanded); }

void LinkProbe::on_landed() {
  if ((phase_ != Phase::kAlone && phase_ != Phase::kBoth) || landed_ == sent_) return;
  ++landed_;
  const bool late = took_ns() > kPartNs;
  if (counted_from_ == 0) {
    if (landed_ == kFirstBursts || late) {
      counted_from_ = landed_;
      started_ns_ = now_ns();
    }
    return send_burst();
  }
  if (!late && sent_ < counted_from_ + kCountedBursts) return send_burst();
  if (landed_ == sent_) on_all_landed();
}

void LinkProbe::on_all_landed() {
  const auto bytes = static_cast<double>((landed_ - counted_from_) * ProbeMemory::kBurstBytes);
  const double rate = bytes * kNsPerSecond / static_cast<double>(took_ns());
  const uint64_t bytes_s = static_cast<uint64_t>(std::max(1.0, rate));
  if (phase_ == Phase::kAlone) {
    alone_bytes_s_ = bytes_s;
    phase_ = Phase::kWaiting;
    tell(ProbeNote::Kind::kTurn);
    if (!first_) send_bursts(Phase::kBoth);
  } else {
    phase_ = Phase::kOver;
    if (!std::exchange(measuring_, false)) return;
    const double latency_ns = std::max(1.0, median(trips_ns_) / 2);
    rates_ = {static_cast<uint64_t>(latency_ns), alone_bytes_s_, bytes_s};
  }
}

}  // namespace hdt::daemon
