#include "daemon/link_probe.h"

#include <algorithm>
#include <numeric>

#include "base/median.h"

namespace hdt::daemon {

namespace {

constexpr int64_t kProbeMs = 3'000;
constexpr size_t kTrips = 33;
// Links of a group come up one after another; with bursts of others between, trips of four nodes on two cores took 5 times as long.
constexpr int64_t kBurstsAfterMs = 20;
// The first ones find the connection's window still small, and each place is touched by the kernel for the first time, which
// takes milliseconds in some virtual machines.
constexpr size_t kFirstBursts = ProbeMemory::kPlaces;
constexpr size_t kBurstsAlone = kFirstBursts + 7;
constexpr size_t kBurstsBoth = 12;
// Of bursts that take so long one is enough, and all that there is time for.
constexpr double kSlowBurstNs = 50e6;

// `bytes_s` of a burst without the round trip that it takes longer than its bytes.
uint64_t rate_of(double burst_ns, double trip_ns) {
  const double wire_ns = std::max(1.0, burst_ns - trip_ns);
  return static_cast<uint64_t>(
      std::max(1.0, static_cast<double>(ProbeMemory::kBurstBytes) * kNsPerSecond / wire_ns));
}

bool enough(const std::vector<double>& bursts_ns, size_t wanted) {
  return bursts_ns.size() >= wanted || bursts_ns.back() > kSlowBurstNs;
}

}  // namespace

LinkProbe::LinkProbe(transport::Link& link, const ProbeMemory& memory, const transport::RegionKey& landing,
                     const session::LinkRates& known, bool first)
    : link_(link),
      memory_(memory),
      landing_(landing),
      rates_(known),
      until_(Deadline::after_ms(kProbeMs)),
      first_(first),
      measuring_(!known.measured()) {
  tell(measuring_ ? ProbeNote::Kind::kHere : ProbeNote::Kind::kKnown);
}

void LinkProbe::tell(ProbeNote::Kind kind) { (void)link_.send(encode(ProbeNote{0, kind, landing_})); }

int64_t LinkProbe::took_ns() const { return std::max<int64_t>(1, now_ns() - started_ns_); }

void LinkProbe::on_note(const ProbeNote& note) {
  switch (note.kind) {
    case ProbeNote::Kind::kHere:
    case ProbeNote::Kind::kKnown:
      return meet(note);
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

void LinkProbe::meet(const ProbeNote& note) {
  if (phase_ != Phase::kMeeting) return;
  peers_landing_ = note.landing;
  const bool both_know = !measuring_ && note.kind == ProbeNote::Kind::kKnown;
  phase_ = both_know ? Phase::kOver : Phase::kTrips;
  if (!both_know) ping();
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
  if (first_) {
    bursts_at_ = Deadline::after_ms(kBurstsAfterMs);
  } else if (turn_) {
    begin(Phase::kAlone);
  }
}

void LinkProbe::on_time() {
  if (!bursts_at_.expired()) return;
  bursts_at_ = Deadline::never();
  begin(Phase::kAlone);
}

// The first end has had its bursts before the peer gives it the turn.
void LinkProbe::on_turn() {
  turn_ = true;
  if (phase_ != Phase::kWaiting || !bursts_at_.is_never()) return;
  begin(first_ ? Phase::kBoth : Phase::kAlone);
}

void LinkProbe::begin(Phase bursts) {
  phase_ = bursts;
  send_burst();
}

void LinkProbe::send_burst() {
  started_ns_ = now_ns();
  transport::WriteRequest request{memory_.burst(sent_),       ProbeMemory::kBurstBytes, peers_landing_,
                                  ProbeMemory::offset(sent_), encode(ProbeFrame{0}),    kToken};
  ++sent_;
  (void)link_.write(request);
}

void LinkProbe::on_burst() { tell(ProbeNote::Kind::kLanded); }

void LinkProbe::on_landed() {
  if (phase_ == Phase::kAlone) {
    alone_ns_.push_back(static_cast<double>(took_ns()));
    if (!enough(alone_ns_, kBurstsAlone)) return send_burst();
    phase_ = Phase::kWaiting;
    tell(ProbeNote::Kind::kTurn);
    if (!first_) begin(Phase::kBoth);
  } else if (phase_ == Phase::kBoth) {
    both_ns_.push_back(static_cast<double>(took_ns()));
    if (!enough(both_ns_, kBurstsBoth)) return send_burst();
    phase_ = Phase::kOver;
    finish();
  }
}

void LinkProbe::finish() {
  if (!measuring_) return;
  measuring_ = false;
  const double trip_ns = *std::min_element(trips_ns_.begin(), trips_ns_.end());
  rates_.latency_ns = static_cast<uint64_t>(std::max(1.0, median(trips_ns_) / 2));
  // Calls have several pieces in flight: what one waits for is hidden by the next. So the median of single bursts; but both ways
  // at once, where it is the engine that is short, all of their time.
  if (alone_ns_.size() > kFirstBursts) alone_ns_.erase(alone_ns_.begin(), alone_ns_.begin() + kFirstBursts);
  rates_.bytes_s = rate_of(median(alone_ns_), trip_ns);
  const double both_ns = std::accumulate(both_ns_.begin(), both_ns_.end(), 0.0);
  rates_.duplex_bytes_s = rate_of(both_ns / static_cast<double>(both_ns_.size()), trip_ns);
}

}  // namespace hdt::daemon
