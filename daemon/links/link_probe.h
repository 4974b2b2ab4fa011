// link_probe.h: measures one link from this end: round trips of a message, then bursts of payload, first
// alone and then while the other end sends as many. Both ends measure their own direction and answer the
// other's. The median of the round trips counts, since a call meets what is usual: if nodes share
// processors, that is several times the fastest. The measurement is bounded in bytes and in time. At the
// deadline the link counts as not measured.
//
// The protocol (ProbeMessage in wire.h):
//
// 1. Meeting. Each end sends where bursts may land: kKnown as soon as the link is up, if it knows the
//    rates; otherwise kHere when it begins, that is when its group has no link to measure before this
//    one. If both know the rates, nothing is measured. If one does, it takes part and keeps what it
//    knows.
// 2. Trips. Each end that has begun and has the other's message sends kPing, which is answered by kPong,
//    33 times in a row.
// 3. Alone. The first end (both know which that is) sends its bursts. The peer acknowledges each with
//    kLanded. Then the first end sends kTurn, and the other one does the same.
// 4. Both. The second end begins to send again after its kTurn, the first end when it has that kTurn. So
//    both send at once.
//
// Owner: PeerLink; the engine's thread. The engine passes messages and frames of the probe here.
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

// The memory in which bursts land and of which they are made: one for all links of an engine, as nobody
// reads what lands. A burst is as long as a large chunk of a call. Within one probe no burst goes where
// one before it went. With 8 MiB in turn, which stay in the last cache, the rates were twice those of
// large calls.
class ProbeMemory {
 public:
  // bytes of a burst
  static constexpr size_t kBurstBytes = size_t{512} << 10;
  // places for bursts in the memory
  static constexpr size_t kPlaces = 128;
  static constexpr size_t kAllBytes = kPlaces * kBurstBytes;
  // Where burst number `burst` is, in bytes from the start.
  static size_t offset(uint64_t burst) { return burst % kPlaces * kBurstBytes; }

  // The memory, which the first call allocates: engines without links do not need it.
  std::byte* take() {
    bytes_.resize(kAllBytes);
    return bytes_.data();
  }
  // Only after take().
  const std::byte* bytes() const { return bytes_.data(); }

 private:
  std::vector<std::byte> bytes_;
};

// See the head of this file.
class LinkProbe {
 public:
  // `link` and `memory` must outlive the probe. `landing` is the key of this end's probe memory. `known`
  // are the rates if they are known, else not measured(). `first`: this end's bursts come before the
  // peer's; true at exactly one end. Sends kKnown if the rates are known.
  LinkProbe(transport::Link& link, const ProbeMemory& memory, const transport::RegionKey& landing,
            const ipc::LinkRates& known, bool first);

  // Begins to measure. No effect if it has begun, or if the rates are known.
  void begin();
  // A message of the peer's measurement.
  void on_message(const ProbeMessage& note);
  // A burst of the peer has landed.
  void on_burst();
  // It measures or is to measure. False: it is done, was given up, or need not measure.
  bool measuring() const { return measuring_; }
  // The deadline has passed: the rates stay not measured().
  void give_up() { measuring_ = false; }
  // When to give up; never before it has begun.
  Deadline until() const { return until_; }
  // Valid when it does not measure any more. not measured() if it was given up.
  const ipc::LinkRates& rates() const { return rates_; }

  // The token of its writes in the link, which no WriteToken of a group has.
  static constexpr uint64_t kToken = UINT64_MAX;

 private:
  enum class Phase : uint8_t {
    // this end or the peer has not sent where bursts may land
    kMeeting,
    // round trips are under way
    kTrips,
    // its trips are done, and it is not its turn to send bursts
    kWaiting,
    // it sends its bursts while the peer sends none
    kAlone,
    // both send
    kBoth,
    // nothing is left to be sent
    kOver,
  };

  // Begins the trips when both ends have sent where bursts may land.
  void meet();
  void ping();
  void on_pong();
  // The peer's bursts are over.
  void on_turn();
  // Begins a run of bursts.
  void send_bursts(Phase phase);
  void send_burst();
  // A burst has landed at the peer: sends the next one, or ends the run.
  void on_landed();
  // The run is over: its rate, and what follows.
  void on_all_landed();
  void tell(ProbeMessage::Kind kind);
  // ns since `started_ns_`, at least 1.
  int64_t took_ns() const;

  transport::Link& link_;
  const ProbeMemory& memory_;
  // the key of this end's memory, which the peer writes to
  transport::RegionKey landing_;
  // the peer's first kHere or kKnown; nothing: it has not come
  std::optional<ProbeMessage> peers_;
  ipc::LinkRates rates_;
  Deadline until_ = Deadline::never();
  const bool first_;
  // the rates are wanted
  bool measuring_;
  // begin() was called, or is not needed
  bool begun_;
  // kTurn has come, perhaps before this end's trips were over
  bool turn_ = false;
  Phase phase_ = Phase::kMeeting;
  // when the round trip under way began, or the part of the run that counts
  int64_t started_ns_ = 0;
  std::vector<double> trips_ns_;
  // bursts sent in this run
  uint64_t sent_ = 0;
  // the number of the next burst's place, over all runs
  uint64_t place_ = 0;
  // bursts landed in this run
  uint64_t landed_ = 0;
  // bursts that had landed when counting began; 0: it has not begun
  uint64_t counted_from_ = 0;
  // the rate of the first run, bytes per second
  uint64_t alone_bytes_s_ = 0;
};

}  // namespace hdt::daemon
