// rail.cc: see rail.h.
#include "transports/link/rail.h"

#include <cstring>

namespace hdt::transport {

namespace {

// A rail among others has at most so much under way: what it carries in kWindowNs. Enough to keep it busy while an
// acknowledgement comes back behind chunks of the other direction, which themselves wait for no longer; every
// millisecond more delays the end of each piece by as much, twice in an allreduce, and notes on their way.
constexpr double kWindowNs = 2e6;
constexpr uint64_t kLeastWindow = 32 << 10;
constexpr uint64_t kMostWindow = 16 << 20;
constexpr uint64_t kFirstWindow = 512 << 10;  // before the rate is known

// Acknowledgements that nobody waits for are sent when so much is owed.
constexpr uint64_t kMostOwedChunks = 32;
constexpr uint64_t kMostOwedBytes = 512 << 10;
constexpr uint64_t kMostOwedNotices = 64;

// Time under way that one figure of the rate is taken over. Acknowledgements come in bursts, behind chunks of the other
// direction: over less time a burst looks like a fast rail, which then gets what others should carry.
constexpr double kMeasuredNs = 16e6;
// A rail without traffic is tried again after this time, as if it were as fast as the fastest.
constexpr int64_t kRememberedNs = 100 * kNsPerMs;

}  // namespace

Rail::Rail(Connection* connection, uint32_t number, int64_t now)
    : connection_(connection), number_(number), added_ns_(now), heard_ns_(now) {
  status_.local_address = connection->local_address();
  status_.remote_address = connection->remote_address();
}

uint64_t Rail::window() const {
  if (ns_per_byte_ == 0) return kFirstWindow;
  return std::clamp(static_cast<uint64_t>(kWindowNs / ns_per_byte_), kLeastWindow, kMostWindow);
}

bool Rail::has_room(bool alone) const {
  if (!up() || connection_->write_window() == 0) return false;
  return alone || status_.bytes_in_flight < window();
}

double Rail::known_ns_per_byte(int64_t now) const {
  return idle() && now - acknowledged_ns_ > kRememberedNs ? 0 : ns_per_byte_;
}

double Rail::load(uint64_t more, double unknown_ns_per_byte, int64_t now) const {
  const double known = known_ns_per_byte(now);
  return static_cast<double>(status_.bytes_in_flight + more) * (known == 0 ? unknown_ns_per_byte : known);
}

Status Rail::write(const Outbox::Chunk& chunk, bool checksum, int64_t now) {
  ChunkHeader header = chunk.header;
  const uint64_t bytes = header.bytes();
  if (checksum) {
    header.magic = kCheckedChunkMagic;
    header.checksum = checksum_of(header, {chunk.data, bytes});
  }
  header.received = static_cast<uint32_t>(received_);
  HDT_RETURN_IF_ERROR(connection_->write(chunk.data, bytes, chunk.region, chunk.region_offset,
                                         to_immediate(header), header.message_id));
  under_way_.push_back(chunk);
  under_way_.back().written_ns = now;
  status_.bytes_in_flight += bytes;
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

Outbox::Chunk* Rail::on_handed_over() {
  if (handed_over_ >= written()) return nullptr;
  // Acknowledged before the backend said that it was sent: then it has left the book.
  if (handed_over_ < settled_) {
    ++handed_over_;
    return nullptr;
  }
  Outbox::Chunk& chunk = under_way_[handed_over_++ - settled_];
  status_.bytes_out += chunk.header.bytes();
  ++status_.writes_out;
  return &chunk;
}

std::optional<uint64_t> Rail::acknowledged(uint32_t received, int64_t now) {
  const auto fresh = static_cast<int32_t>(received - static_cast<uint32_t>(settled_));
  if (fresh <= 0) return 0;
  if (static_cast<uint64_t>(fresh) > under_way_.size()) return std::nullopt;
  uint64_t bytes = 0;
  for (int32_t i = 0; i < fresh; ++i) bytes += under_way_[static_cast<size_t>(i)].header.bytes();
  measure(bytes, under_way_.front().written_ns, now);
  return static_cast<uint64_t>(fresh);
}

Outbox::Chunk Rail::take_front() {
  Outbox::Chunk chunk = std::move(under_way_.front());
  under_way_.pop_front();
  ++settled_;
  status_.bytes_in_flight -= chunk.header.bytes();
  return chunk;
}

// From when the rail could have begun with these bytes: a rail that waits for work is not slow.
void Rail::measure(uint64_t bytes, int64_t since, int64_t now) {
  busy_ns_ += static_cast<double>(std::max<int64_t>(now - std::max(since, acknowledged_ns_), 1));
  busy_bytes_ += static_cast<double>(bytes);
  acknowledged_ns_ = now;
  if (busy_bytes_ == 0 || (ns_per_byte_ != 0 && busy_ns_ < kMeasuredNs)) return;
  const double lately = busy_ns_ / busy_bytes_;
  ns_per_byte_ = ns_per_byte_ == 0 ? lately : (ns_per_byte_ + lately) / 2;
  busy_ns_ = busy_bytes_ = 0;
  status_.bytes_per_second = static_cast<uint64_t>(kNsPerSecond / ns_per_byte_);
}

void Rail::on_chunk(uint64_t bytes, bool prompt) {
  ++received_;
  owed_bytes_ += bytes;
  prompt_ |= prompt;
  status_.bytes_in += bytes;
  ++status_.writes_in;
}

bool Rail::owes(bool alone) const {
  if (!alone && received_ != told_) return true;
  return prompt_ || received_ - told_ >= kMostOwedChunks || owed_bytes_ >= kMostOwedBytes ||
         owed_notices_ >= kMostOwedNotices;
}

void Rail::heard(int64_t now) {
  heard_ns_ = now;
  silent_since_ns_ = 0;
  pinged = false;
}

bool Rail::silent(int64_t now) {
  const Connection::Progress progress = connection_->progress();
  outstanding_ = progress.outstanding;
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
