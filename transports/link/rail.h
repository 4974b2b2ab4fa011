// rail.h: one connection of a link: what is under way on it, what has come on it, and its counters.
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

class Rail {
 public:
  // `lane`: its part in the NIC; null: it has the NIC alone.
  Rail(Connection* connection, std::unique_ptr<NicShare::Lane> lane, uint32_t number, int64_t now);

  Connection* connection() const { return connection_; }
  uint32_t number() const { return number_; }
  const RailStatus& status() const { return status_; }
  RailStatus& status() { return status_; }
  std::string describe() const { return "rail " + status_.local_address + " -> " + status_.remote_address; }
  int64_t added_ns() const { return added_ns_; }
  bool up() const { return status_.state == RailStatus::State::kUp; }

  // Of the peer's hello.
  std::optional<uint32_t> peer_number;
  // The peer's last word on how many chunks came: it closed its end.
  std::optional<uint64_t> peer_received;
  // Why it is being given up; kept until kClosed.
  std::optional<Status> given_up;

  // --- sending ---
  bool has_room(bool alone) const;
  // Other classes use its NIC as well.
  bool shared(int64_t now) const { return lane_ != nullptr && lane_->shared(now); }
  // It is its class's turn on the NIC; else the class waits for it.
  bool has_turn(int64_t now) const { return lane_ == nullptr || lane_->admits(now); }
  void wants_turn() const {
    if (lane_ != nullptr) lane_->wants();
  }
  // Of the NIC, where it is shared: of the rail alone a share would be known.
  double path_ns_per_byte(int64_t now) const {
    return shared(now) ? lane_->nic_ns_per_byte() : meter_.ns_per_byte();
  }
  // How long what is under way and `more` bytes take, as it went lately.
  double load(uint64_t more, double unknown_ns_per_byte, int64_t now) const;
  Status write(const Outbox::Chunk& chunk, bool checksum, int64_t now);
  Status send(NoticeKind kind, uint64_t number, uint64_t notices, std::span<const std::byte> body);
  // kSent of the oldest chunk that had none. Null: there is none.
  Outbox::Chunk* on_handed_over();
  // 0: nothing is known; what was true some time ago may not be any more, and a rail that is not used would
  // never show it.
  double known_ns_per_byte(int64_t now) const;
  // The peer's count, modulo 2^32, of what had come by `at` has come: returns how many chunks that newly
  // acknowledges, or nothing if it cannot be.
  std::optional<uint64_t> acknowledged(uint32_t received, Stamp at, int64_t now);
  // The oldest chunk under way leaves the book.
  Outbox::Chunk take_front();
  bool idle() const { return under_way_.empty(); }
  // Of all chunks ever written, those not under way any more.
  uint64_t settled() const { return settled_; }
  uint64_t written() const { return settled_ + under_way_.size(); }

  // --- receiving ---
  void on_chunk(uint64_t bytes, bool prompt, int64_t now);
  void on_notice() { ++owed_notices_; }
  uint64_t received() const { return received_; }
  // Of several rails, each has a window that only acknowledgements open: all is owed at once.
  bool owes(bool alone) const;

  // --- is it alive? ---
  void heard(int64_t now);
  int64_t heard_ns() const { return heard_ns_; }
  // Looks at the connection: true if something is under way and nothing has moved since the last time.
  bool silent(int64_t now);
  int64_t silent_since_ns() const { return silent_since_ns_; }
  // When silent() looked last: Connection::Progress::round_ns.
  int64_t round_ns() const { return round_ns_; }
  // Others between the same NICs got somewhere since then.
  bool others_move(int64_t since) const { return lane_ != nullptr && lane_->others_move(since); }
  // When silent() looked last: something was under way.
  bool outstanding() const { return outstanding_; }
  bool pinged = false;

  void on_closed() { connection_ = nullptr; }

 private:
  Connection* connection_;
  const std::unique_ptr<NicShare::Lane> lane_;
  const uint32_t number_;
  const int64_t added_ns_;
  RailStatus status_;
  std::deque<Outbox::Chunk> under_way_;
  uint64_t settled_ = 0;
  uint64_t handed_over_ = 0;  // of all chunks ever written

  uint64_t received_ = 0;
  Stamp received_at_ = 0;  // when the last one came
  uint64_t told_ = 0;      // of received_, what the peer knows
  uint64_t owed_bytes_ = 0;
  uint64_t owed_notices_ = 0;
  bool prompt_ = false;

  int64_t heard_ns_;
  int64_t silent_since_ns_ = 0;  // 0: it is not silent
  uint64_t moved_ = 0;
  bool outstanding_ = false;
  int64_t round_ns_ = 0;

  RateMeter meter_;
  DelayMeter delay_;
};

}  // namespace hdt::transport
