// link_probe.h: measures one link, from this end: round trips of a note, then bursts of payload, alone and while the other end
// sends as many. The median of the trips counts, as a call meets what is usual: where nodes share processors, several times
// the fastest. Both ends measure their own direction and answer the other's. Bounded in bytes and in time: at the deadline
// the link counts as not measured.
//
// Each end first says where bursts may land (kHere; kKnown if its rates are known). An end that has heard it pings. A little
// later, so that bursts are not in the way of what other links of a new group ping, the first
// end (both know which that is) sends its bursts, each of which the peer acknowledges when all of it has landed, and
// gives the other the turn; when that one gives it back, both send at once. Where both know their rates, nothing is measured; where
// one does, it takes part, and keeps what it knows.
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

// Where bursts land and what they are made of; one for all links of an engine, as nobody reads what lands. More than one burst
// of each, in turn: what was sent a moment before would be in the nearest caches, where a user's buffers are not.
class ProbeMemory {
 public:
  static constexpr size_t kBurstBytes = size_t{1} << 20;
  static constexpr size_t kPlaces = 4;
  static constexpr size_t kLandingBytes = kPlaces * kBurstBytes;
  static size_t offset(uint64_t burst) { return burst % kPlaces * kBurstBytes; }

  // The first call takes the memory, which engines without links do not need; burst() is for later.
  std::byte* landing() {
    bytes_.resize(2 * kLandingBytes);
    return bytes_.data();
  }
  const std::byte* burst(uint64_t number) const { return bytes_.data() + kLandingBytes + offset(number); }

 private:
  std::vector<std::byte> bytes_;
};

class LinkProbe {
 public:
  // Says hello. `first`: its bursts come before the peer's.
  LinkProbe(transport::Link& link, const ProbeMemory& memory, const transport::RegionKey& landing,
            const session::LinkRates& known, bool first);

  void on_note(const ProbeNote& note);
  // A burst of the peer has landed.
  void on_burst();
  // Goes on with what had to wait for next_time().
  void on_time();
  Deadline next_time() const { return bursts_at_; }
  // Until then it measures; false: done, or given up.
  bool measuring() const { return measuring_; }
  void give_up() { measuring_ = false; }
  Deadline until() const { return until_; }
  // Valid when it measures no more; not measured() where it was given up.
  const session::LinkRates& rates() const { return rates_; }

  // The token of its writes.
  static constexpr uint64_t kToken = UINT64_MAX;

 private:
  enum class Phase : uint8_t {
    kMeeting,  // the peer has not said where bursts may land
    kTrips,
    kWaiting,  // for its turn
    kAlone,
    kBoth,
    kOver,
  };

  void meet(const ProbeNote& note);
  void ping();
  void on_pong();
  void on_turn();
  void begin(Phase bursts);
  void send_burst();
  void on_landed();
  void finish();
  void tell(ProbeNote::Kind kind);
  int64_t took_ns() const;

  transport::Link& link_;
  const ProbeMemory& memory_;
  transport::RegionKey landing_;
  transport::RegionKey peers_landing_;
  session::LinkRates rates_;
  Deadline until_;
  Deadline bursts_at_ = Deadline::never();
  const bool first_;
  bool measuring_;
  bool turn_ = false;  // given before the trips were over
  Phase phase_ = Phase::kMeeting;
  uint64_t sent_ = 0;       // bursts
  int64_t started_ns_ = 0;  // the round trip or burst under way
  std::vector<double> trips_ns_;
  std::vector<double> alone_ns_;
  std::vector<double> both_ns_;
};

}  // namespace hdt::daemon
