// rail.cc: the books of one connection (see rail.h). The acknowledgement travels in every fragment and every
// notice of the other direction. One that has to be sent by itself is sent by Link::flush(), where owes()
// says so.
#include "transports/link/rail.h"

#include <cstring>

#include "base/address.h"

namespace hdt::transport {

namespace {

// An acknowledgement that nobody waits for is sent when one of these is reached. They bound the fragments and
// notices that the sender keeps meanwhile.
constexpr uint64_t kMostOwedFragments = 32;
constexpr uint64_t kMostOwedBytes = 512 << 10;
constexpr uint64_t kMostOwedNotices = 64;

// A rail that was idle for this long is tried again as if it were as fast as the fastest one.
constexpr int64_t kIdleRememberedNs = 100 * kNsPerMs;

}  // namespace

Rail::Rail(Connection* connection, std::unique_ptr<NicShare::Lane> lane, uint32_t number, int64_t now)
    : connection_(connection), lane_(std::move(lane)), number_(number), added_ns_(now), heard_ns_(now) {
  status_.local_address = connection->local_address();
  status_.remote_address = connection->remote_address();
  status_.nic = host_of(status_.local_address);
  if (lane_ == nullptr) return;
  lane_->leads_to(host_of(status_.remote_address));
  if (!lane_->nic_name().empty()) status_.nic = lane_->nic_name();
  status_.nic_bits_per_second = lane_->nic_bits_per_second();
}

// The window goes by the best of the latest figures, not by their average (rate_meter.h says why).
bool Rail::has_room(bool alone) const {
  if (!up() || connection_->write_window() == 0) return false;
  return alone || status_.bytes_in_flight < window_of(meter_.best_ns_per_byte(), delay_.rest_ns());
}

double Rail::known_ns_per_byte(int64_t now) const {
  return idle() && now - meter_.last_ns() > kIdleRememberedNs ? 0 : meter_.ns_per_byte();
}

double Rail::load(uint64_t more, double unknown_ns_per_byte, int64_t now) const {
  const double known = known_ns_per_byte(now);
  return static_cast<double>(status_.bytes_in_flight + more) * (known == 0 ? unknown_ns_per_byte : known);
}

// The checksum comes first: it leaves out the two fields that are set after it (checksum_of()). Nothing
// changes in the books before the connection has taken the fragment.
Status Rail::write(const Outbox::Fragment& fragment, bool checksum, int64_t now) {
  FragmentHeader header = fragment.header;
  const uint64_t bytes = header.bytes();
  if (checksum) {
    header.magic = kCheckedFragmentMagic;
    header.checksum = checksum_of(header, {fragment.data, bytes});
  }
  header.received = static_cast<uint32_t>(received_);
  header.received_at = received_at_;
  HDT_RETURN_IF_ERROR(connection_->write(fragment.data, bytes, fragment.region, fragment.region_offset,
                                         to_immediate(header), header.message_id));
  under_way_.push_back(fragment);
  under_way_.back().written_ns = now;
  status_.bytes_in_flight += bytes;
  if (lane_ != nullptr) lane_->handed_over(bytes, now);
  told_ = received_;
  owed_bytes_ = 0;
  prompt_ = false;
  return Status::ok();
}

Status Rail::send(NoticeKind kind, uint64_t number, uint64_t notices, std::span<const std::byte> body) {
  NoticeHead head;
  head.kind = kind;
  head.number = number;
  head.notices = notices;
  head.received = static_cast<uint32_t>(received_);
  head.received_at = received_at_;
  std::byte message[kMaxMessageBytes];
  std::memcpy(message, &head, sizeof head);
  if (!body.empty()) std::memcpy(message + sizeof head, body.data(), body.size());
  HDT_RETURN_IF_ERROR(connection_->send({message, sizeof head + body.size()}, 0));
  ++status_.messages_out;
  told_ = received_;
  owed_bytes_ = owed_notices_ = 0;
  prompt_ = false;
  return Status::ok();
}

Outbox::Fragment* Rail::on_handed_over() {
  if (handed_over_ >= written()) return nullptr;
  // The peer's acknowledgement may overtake the backend's report. The fragment has left the book then.
  if (handed_over_ < settled_) {
    ++handed_over_;
    return nullptr;
  }
  Outbox::Fragment& fragment = under_way_[handed_over_++ - settled_];
  status_.bytes_out += fragment.header.bytes();
  ++status_.writes_out;
  return &fragment;
}

std::optional<uint64_t> Rail::acknowledged(uint32_t received, Stamp at, int64_t now) {
  // Serial-number arithmetic: far fewer than 2^31 fragments are under way, so the sign of the difference
  // tells an old count from a new one.
  const auto fresh = static_cast<int32_t>(received - static_cast<uint32_t>(settled_));
  if (fresh <= 0) return 0;
  if (static_cast<uint64_t>(fresh) > under_way_.size()) return std::nullopt;
  uint64_t bytes = 0;
  for (int32_t i = 0; i < fresh; ++i) bytes += under_way_[static_cast<size_t>(i)].header.bytes();
  // The delay is that of the fragment that came last, whose time of arrival the peer gives. The rate counts
  // all of them, from when the oldest was handed over.
  delay_.known(under_way_[static_cast<size_t>(fresh) - 1].written_ns, at, now);
  meter_.acknowledged(bytes, under_way_.front().written_ns, now);
  if (meter_.ns_per_byte() != 0)
    status_.bytes_per_second = static_cast<uint64_t>(kNsPerSecond / meter_.ns_per_byte());
  if (!shared(now)) status_.alone_bytes_per_second = status_.bytes_per_second;
  if (lane_ != nullptr) lane_->acknowledged(bytes, under_way_.front().written_ns, delay_.rest_ns(), now);
  return static_cast<uint64_t>(fresh);
}

Outbox::Fragment Rail::take_front() {
  Outbox::Fragment fragment = std::move(under_way_.front());
  under_way_.pop_front();
  ++settled_;
  status_.bytes_in_flight -= fragment.header.bytes();
  if (lane_ != nullptr) lane_->settled(fragment.header.bytes());
  return fragment;
}

void Rail::on_fragment(uint64_t bytes, bool prompt, int64_t now) {
  if (lane_ != nullptr) lane_->heard(bytes, now);
  ++received_;
  received_at_ = stamp_of(now);
  owed_bytes_ += bytes;
  prompt_ |= prompt;
  status_.bytes_in += bytes;
  ++status_.writes_in;
}

// A rail among others must not let the peer's window for it run dry, so it owes each fragment at once. A rail
// that is alone is taken to have no window at the peer, so that only senders of large writes wait.
bool Rail::owes(bool alone) const {
  if (!alone && received_ != told_) return true;
  return prompt_ || received_ - told_ >= kMostOwedFragments || owed_bytes_ >= kMostOwedBytes ||
         owed_notices_ >= kMostOwedNotices;
}

void Rail::heard(int64_t now) {
  heard_ns_ = now;
  silent_since_ns_ = 0;
  pinged = false;
}

// The connection's own counters show more than notices do: a kernel acknowledges for a peer that is stopped,
// so a slow peer is not silent. Any progress ends the silence, and the next silence is pinged anew.
bool Rail::silent(int64_t now) {
  const Connection::Progress progress = connection_->progress();
  outstanding_ = progress.outstanding;
  round_ns_ = progress.round_ns;
  if (progress.moved != moved_ && lane_ != nullptr) lane_->progressed(now);
  if (progress.moved != moved_ || !progress.outstanding) {
    moved_ = progress.moved;
    silent_since_ns_ = 0;
    pinged = false;
    return false;
  }
  if (silent_since_ns_ == 0) silent_since_ns_ = now;
  return true;
}

}  // namespace hdt::transport
