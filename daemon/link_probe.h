// link_probe.h: measures one link, from this end: round trips of a note, then a few bursts of payload. The median of the
// trips counts, as a call meets what is usual: where nodes share processors, several times the fastest. Both ends
// measure their own direction and answer the other's. Bounded in bytes and in time: at the deadline the link counts as
// not measured.
//
// Order: each end first says where bursts may land (kHere). An end that has heard it pings; with the last pong it starts
// its bursts, each of which the peer acknowledges when all of it has landed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "daemon/wire.h"
#include "session/figures.h"
#include "transports/link/link.h"

namespace hdt::daemon {

// Where bursts land and what they are made of; one for all links of an engine, as nobody reads what lands.
class ProbeMemory {
 public:
  static constexpr size_t kBurstBytes = size_t{1} << 20;
  ProbeMemory() : bytes_(2 * kBurstBytes) {}
  std::byte* landing() { return bytes_.data(); }
  const std::byte* burst() const { return bytes_.data() + kBurstBytes; }

 private:
  std::vector<std::byte> bytes_;
};

class LinkProbe {
 public:
  // Says hello. With `known` rates nothing is measured; the peer is answered all the same.
  LinkProbe(transport::Link& link, const ProbeMemory& memory, const transport::RegionKey& landing,
            const session::LinkRates& known);

  void on_note(const ProbeNote& note);
  // A burst of the peer has landed.
  void on_burst();
  // Until then it measures; false: done, or given up.
  bool measuring() const { return measuring_; }
  void give_up() { measuring_ = false; }
  Deadline until() const { return until_; }
  // Valid when it measures no more; not measured() where it was given up.
  const session::LinkRates& rates() const { return rates_; }

  // The token of its writes.
  static constexpr uint64_t kToken = UINT64_MAX;

 private:
  void ping();
  void send_burst();
  void tell(ProbeNote::Kind kind);

  transport::Link& link_;
  const ProbeMemory& memory_;
  transport::RegionKey landing_;
  transport::RegionKey peers_landing_;
  session::LinkRates rates_;
  Deadline until_;
  bool measuring_ = true;
  int64_t started_ns_ = 0;  // the round trip or burst under way
  std::vector<double> trips_ns_;
  int64_t fastest_burst_ns_ = INT64_MAX;
  int bursts_ = 0;
};

}  // namespace hdt::daemon
