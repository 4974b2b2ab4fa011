// rail.h: a Rail is one connection of a link. It keeps what is under way on the connection, what has come on
// it and is not acknowledged yet, what its speed and delay are, and whether it is alive.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "transports/link/delay_meter.h"
#include "transports/link/nic_share.h"
#include "transports/link/notice.h"
#include "transports/link/outbox.h"

namespace hdt::transport {

// Owned by Link::State and used on the engine's thread. A Rail decides nothing: link.cc and rail_loss.cc ask
// it and act. Numbering: the fragments written on a rail are numbered from 0 in each direction. A connection
// delivers in order, so one number, the peer's count of received fragments, says which ones have arrived.
//
//   0 ... settled() ... written()      settled(): arrived, or returned to the outbox; the rest is under way
//         (book: under_way_)
//
// States: RailStatus::State. Once `given_up` is set or the state is kDown nothing is sent or counted any
// more, and the rail waits for its connection's kClosed and for the peer's count.
class Rail {
 public:
  // `connection` has reported kReady, and stays valid until on_closed(). `lane`: its part in the NIC; null:
  // it has the NIC alone. `number`: this end's number of the rail, unique in the link.
  Rail(Connection* connection, std::unique_ptr<NicShare::Lane> lane, uint32_t number, int64_t now);

  // Null after kClosed.
  Connection* connection() const { return connection_; }
  uint32_t number() const { return number_; }
  const RailStatus& status() const { return status_; }
  RailStatus& status() { return status_; }
  std::string describe() const { return "rail " + status_.local_address + " -> " + status_.remote_address; }
  // When the link got it; the time limit of the peer's hello counts from here.
  int64_t added_ns() const { return added_ns_; }
  bool up() const { return status_.up(); }

  // The peer's number of this rail, from its hello; nothing before.
  std::optional<uint32_t> peer_number;
  // The peer's final count of fragments that came on this rail, from its kRailLost: its end is closed.
  std::optional<uint64_t> peer_received;
  // Why this end abandoned the connection; set before kClosed comes, and not for a connection that closes by
  // itself.
  std::optional<Status> given_up;

  // --- sending --- True if a fragment may be handed to it: it is up, its backend takes a write, and less is
  // under way than its window (window_of()). The window does not count for a rail that is `alone`.
  bool has_room(bool alone) const;
  // True if other classes use its NIC as well.
  bool shared(int64_t now) const { return lane_ != nullptr && lane_->shared(now); }
  // True if it is its class's turn on the NIC. If not, the class is noted as waiting.
  bool has_turn(int64_t now) const { return lane_ == nullptr || lane_->admits(now); }
  // Updates RailStatus::nic_part.
  void look_at_nic(int64_t now) {
    if (lane_ != nullptr) status_.nic_part = lane_->part(now);
  }
  // Notes that its class has a fragment for the NIC.
  void wants_turn() const {
    if (lane_ != nullptr) lane_->wants();
  }
  // The time that a byte takes, in ns; 0: not known. Where the NIC is shared it is the NIC's, because the
  // rail's own figure would be that of its share.
  double path_ns_per_byte(int64_t now) const {
    return shared(now) ? lane_->nic_ns_per_byte() : meter_.ns_per_byte();
  }
  // How long what is under way and `more` bytes take, in ns, at the rail's latest speed.
  // `unknown_ns_per_byte` is taken for a rail whose speed is not known.
  double load(uint64_t more, double unknown_ns_per_byte, int64_t now) const;
  // Hands a fragment to the connection, with an acknowledgement in its header. On failure the fragment is not
  // under way; the connection is dead then, and its kClosed follows.
  Status write(const Outbox::Fragment& fragment, bool checksum, int64_t now);
  // Sends a notice, which acknowledges as well. `notices`: how many numbered notices have come. `body` has at
  // most kMaxLinkMessageBytes.
  Status send(NoticeKind kind, uint64_t number, uint64_t notices, std::span<const std::byte> body);
  // The backend reported a fragment sent. Backends report in the order of the writes, so it is the oldest one
  // without a report. Null: that one was acknowledged already, or there is none.
  Outbox::Fragment* on_handed_over();
  // The time that a byte takes, in ns. 0: not known, which also holds for a rail that was idle for 100 ms.
  // Its old figure may be wrong, and a rail that is not used would never show that.
  double known_ns_per_byte(int64_t now) const;
  // Takes the peer's count of received fragments, modulo 2^32; the last of them came at `at` by the peer's
  // clock. Returns how many fragments that acknowledges newly, or nothing if the count is above what was
  // written. The caller takes them with take_front().
  std::optional<uint64_t> acknowledged(uint32_t received, Stamp at, int64_t now);
  // Takes the oldest fragment that is under way out of the book. There must be one.
  Outbox::Fragment take_front();
  bool idle() const { return under_way_.empty(); }
  uint64_t settled() const { return settled_; }
  uint64_t written() const { return settled_ + under_way_.size(); }

  // --- receiving ---
  // A fragment of `bytes` was placed. `prompt`: its sender waits for the acknowledgement, as the memory of a
  // large write is free only then.
  void on_fragment(uint64_t bytes, bool prompt, int64_t now);
  // A numbered notice has come.
  void on_notice() { ++owed_notices_; }
  uint64_t received() const { return received_; }
  // True if an acknowledgement is to be sent now. Where a link has several rails, each has a window that only
  // acknowledgements open, so everything is owed at once. A rail that is `alone` collects.
  bool owes(bool alone) const;

  // --- is it alive? ---
  // Something of the peer's link has come on it. Ends a silence.
  void heard(int64_t now);
  int64_t heard_ns() const { return heard_ns_; }
  // Looks at the connection's progress. True if something is under way and nothing has moved since the last
  // look. The connection must not be null.
  bool silent(int64_t now);
  int64_t silent_since_ns() const { return silent_since_ns_; }  // 0: it is not silent
  // Connection::Progress::round_ns as of the last look.
  int64_t round_ns() const { return round_ns_; }
  // True if another rail between the same NIC and peer host made progress at or after `since`. Our data may
  // simply be queued behind that rail's, so silence here is not failure.
  bool others_move(int64_t since) const { return lane_ != nullptr && lane_->others_move(since); }
  // True if something was under way at the last look.
  bool outstanding() const { return outstanding_; }
  // A ping was sent in this silence. Set by Link::State::look_for_silence().
  bool pinged = false;

  void on_closed() { connection_ = nullptr; }

 private:
  Connection* connection_;
  const std::unique_ptr<NicShare::Lane> lane_;
  const uint32_t number_;
  const int64_t added_ns_;
  RailStatus status_;
  std::deque<Outbox::Fragment> under_way_;  // fragments settled_ to written() - 1, the oldest first
  uint64_t settled_ = 0;
  uint64_t handed_over_ = 0;  // fragments 0 to this one - 1 were reported sent

  uint64_t received_ = 0;      // fragments that came, from the first on
  Stamp received_at_ = 0;      // when the last one came, by this end's clock
  uint64_t told_ = 0;          // the part of received_ that was sent to the peer as an acknowledgement
  uint64_t owed_bytes_ = 0;    // payload that came since then
  uint64_t owed_notices_ = 0;  // numbered notices that came since this end sent a notice
  bool prompt_ = false;        // a sender waits for the acknowledgement

  int64_t heard_ns_;             // when something of the peer came last; at first: when the rail was added
  int64_t silent_since_ns_ = 0;  // 0: it is not silent
  uint64_t moved_ = 0;           // Connection::Progress::moved as of the last look
  bool outstanding_ = false;
  int64_t round_ns_ = 0;

  RateMeter meter_;
  DelayMeter delay_;
};

}  // namespace hdt::transport
