// link_probe.h: measures one link, from this end: round trips of a note, then bursts of payload, alone and
// while the other end sends as many. The median of the trips counts, as a call meets what is usual: where
// nodes share processors, several times the fastest. Both ends measure their own direction and answer the
// other's. Bounded in bytes and in time: at the deadline the link counts as not measured.
//
// Each end says where bursts may land: kKnown as soon as the link is up, if its rates are known, else kHere
// when it begins, which is when a group has no link to measure before it. An end that has begun and has heard
// the other pings. Then the first end (both know which that is) sends its bursts, each of which the peer
// acknowledges when all of it has landed, and gives the other the turn; when that one gives it back, both
// send at once. Where both know their rates, nothing is measured; where one does, it takes part, and keeps
// what it knows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "daemon/protocol/wire.h"
#include "ipc/measurements.h"
#include "transports/link/link.h"

namespace hdt::daemon {

// Where bursts land and what they are made of; one for all links of an engine, as nobody reads what lands. A
// burst is as long as a large piece of a call. None of a probe goes where one before it went: with 8 MiB in
// turn, which stay in the last cache, rates were twice those of large calls.
class ProbeMemory {
 public:
  static constexpr size_t kBurstBytes = size_t{512} << 10;
  static constexpr size_t kPlaces = 128;
  static constexpr size_t kAllBytes = kPlaces * kBurstBytes;
  static size_t offset(uint64_t burst) { return burst % kPlaces * kBurstBytes; }

  // The first call takes the memory, which engines without links do not need.
  std::byte* take() {
    bytes_.resize(kAllBytes);
    return bytes_.data();
  }
  const std::byte* bytes() const { return bytes_.data(); }

 private:
  std::vector<std::byte> bytes_;
};

class LinkProbe {
 public:
  // `first`: its bursts come before the peer's.
  LinkProbe(transport::Link& link, const ProbeMemory& memory, const transport::RegionKey& landing,
            const session::LinkRates& known, bool first);

  // Measures from now on, if it has not begun before.
  void begin();
  void on_note(const ProbeNote& note);
  // A burst of the peer has landed.
  void on_burst();
  // It measures, or is to; false: done, or given up.
  bool measuring() const { return measuring_; }
  void give_up() { measuring_ = false; }
  // When to give up. Never, before it has begun.
  Deadline until() const { return until_; }
  // Valid when it measures no more; not measured() where it was given up.
  const session::LinkRates& rates() const { return rates_; }

  // The token of its writes.
  static constexpr uint64_t kToken = UINT64_MAX;

 private:
  enum class Phase : uint8_t {
    kMeeting,  // this end or the peer has not said where bursts may land
    kTrips,
    kWaiting,  // for its turn
    kAlone,
    kBoth,
    kOver,
  };

  void meet();
  void ping();
  void on_pong();
  void on_turn();
  void send_bursts(Phase phase);
  void send_burst();
  void on_landed();
  void on_all_landed();
  void tell(ProbeNote::Kind kind);
  int64_t took_ns() const;

  transport::Link& link_;
  const ProbeMemory& memory_;
  transport::RegionKey landing_;
  std::optional<ProbeNote> peers_;  // what it said first
  session::LinkRates rates_;
  Deadline until_ = Deadline::never();
  const bool first_;
  bool measuring_;
  bool begun_;
  bool turn_ = false;  // given before the trips were over
  Phase phase_ = Phase::kMeeting;
  int64_t started_ns_ = 0;  // the round trip under way, or the first burst that counts
  std::vector<double> trips_ns_;
  uint64_t sent_ = 0;   // bursts
  uint64_t place_ = 0;  // of the next burst
  uint64_t landed_ = 0;
  uint64_t counted_from_ = 0;  // 0: those that land do not count yet
  uint64_t alone_bytes_s_ = 0;
};

}  // namespace hdt::daemon
