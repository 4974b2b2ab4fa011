#include "daemon/link_probe.h"

#include <algorithm>

#include "base/median.h"

namespace hdt::daemon {

namespace {

constexpr int64_t kProbeMs = 3'000;
constexpr size_t kTrips = 33;
constexpr int kBursts = 3;  // the first ones find the connection's window still small

}  // namespace

LinkProbe::LinkProbe(transport::Link& link, const ProbeMemory& memory, const transport::RegionKey& landing,
                     const session::LinkRates& known)
    : link_(link),
      memory_(memory),
      landing_(landing),
      rates_(known),
      until_(Deadline::after_ms(kProbeMs)),
      measuring_(!known.measured()) {
  tell(ProbeNote::Kind::kHere);
}

void LinkProbe::tell(ProbeNote::Kind kind) { (void)link_.send(encode(ProbeNote{0, kind, landing_})); }

void LinkProbe::ping() {
  started_ns_ = now_ns();
  tell(ProbeNote::Kind::kPing);
}

void LinkProbe::send_burst() {
  started_ns_ = now_ns();
  transport::WriteRequest request{
      memory_.burst(), ProbeMemory::kBurstBytes, peers_landing_, 0, encode(ProbeFrame{0}), kToken};
  (void)link_.write(request);
}

void LinkProbe::on_burst() { tell(ProbeNote::Kind::kLanded); }

void LinkProbe::on_note(const ProbeNote& note) {
  if (note.kind == ProbeNote::Kind::kPing) return tell(ProbeNote::Kind::kPong);
  if (!measuring_) return;
  const int64_t took_ns = std::max<int64_t>(1, now_ns() - started_ns_);
  if (note.kind == ProbeNote::Kind::kHere && trips_ns_.empty()) {
    peers_landing_ = note.landing;
    ping();
  } else if (note.kind == ProbeNote::Kind::kPong && trips_ns_.size() < kTrips && started_ns_ != 0) {
    trips_ns_.push_back(static_cast<double>(took_ns));
    if (trips_ns_.size() < kTrips) {
      ping();
    } else {
      send_burst();
    }
  } else if (note.kind == ProbeNote::Kind::kLanded && trips_ns_.size() == kTrips) {
    fastest_burst_ns_ = std::min(fastest_burst_ns_, took_ns);
    if (++bursts_ < kBursts) return send_burst();
    // A burst takes a round trip longer than its bytes take.
    const auto fastest_trip_ns = static_cast<int64_t>(*std::min_element(trips_ns_.begin(), trips_ns_.end()));
    const int64_t wire_ns = std::max<int64_t>(1, fastest_burst_ns_ - fastest_trip_ns);
    rates_.latency_ns = static_cast<uint64_t>(std::max(1.0, median(trips_ns_) / 2));
    rates_.bytes_s =
        ProbeMemory::kBurstBytes * static_cast<uint64_t>(kNsPerSecond) / static_cast<uint64_t>(wire_ns);
    measuring_ = false;
  }
}

}  // namespace hdt::daemon
