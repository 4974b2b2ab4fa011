// sealed_reader.cc: reads the frames of a protected connection; see sealed_reader.h.
#include "transports/tcp/sealed_reader.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace hdt::transport::tcp {

namespace {

// The maximum of payload that one read takes directly to its place: it is authenticated while it is in
// the caches.
constexpr size_t kDirectBytes = 128 << 10;
// The maximum that is read into the buffer behind it: room for its tag and the next head. After the
// head comes payload again.
constexpr size_t kBehindPayload = 2 << 10;
// Shorter rests of payload go through the buffer.
constexpr size_t kWorthDirect = 16 << 10;
static_assert(kBehindPayload >= secure::kTagBytes + kSealedHeadBytes);

FrameReader::Outcome ended(const std::string& why) {
  return {FrameReader::State::kEnded, Status(Code::kLink, why)};
}

constexpr char kTampered[] =
    "what came is not what the peer sent (its tag is wrong): somebody or something on the way changes it";

}  // namespace

SealedReader::SealedReader(std::unique_ptr<secure::Opener> opener, std::span<const std::byte> begun)
    : opener_(std::move(opener)), end_(begun.size()) {
  std::copy(begun.begin(), begun.end(), buffer_.get());
}

// Like the fast mode of FrameReader, with one difference: payload that is encrypted always goes through
// the buffer, as it has to be deciphered anyway. Payload that is only authenticated is read straight to
// its place.
//
// Between two rounds the buffer holds less than a head, a message with its tag, or a tag. All of them
// are shorter than the buffer, so there is always room.
FrameReader::Outcome SealedReader::read(int fd, size_t budget, FrameSink& sink) {
  if (FrameReader::Outcome outcome = parse(sink); outcome.state != FrameReader::State::kDrained)
    return outcome;
  for (size_t taken = 0; taken < budget;) {
    if (begin_ > 0) {
      std::memmove(buffer_.get(), buffer_.get() + begin_, present());
      end_ -= begin_;
      begin_ = 0;
    }
    std::array<iovec, 2> vectors;
    int count = 0;
    size_t direct = 0;
    size_t room = kBufferBytes - end_;
    if (expected_ == Part::kPayload && !opener_->encrypts() && remaining_ >= kWorthDirect) {
      direct = std::min(remaining_, kDirectBytes);
      vectors[count++] = {place_, direct};
      // More payload follows: nothing of it may go into the buffer.
      room = direct < remaining_ ? 0 : std::min(room, kBehindPayload);
    }
    if (room > 0) vectors[count++] = {buffer_.get() + end_, room};

    const ssize_t got = ::readv(fd, vectors.data(), count);
    if (got == 0) {
      return ended(expected_ != Part::kHead || present() > 0
                       ? "the peer closed in the middle of a frame"
                       : "the peer closed without a goodbye (did it crash?)");
    }
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {FrameReader::State::kDrained, {}};
      return ended(std::strerror(errno));
    }
    const auto bytes = static_cast<size_t>(got);
    const size_t placed = std::min(bytes, direct);
    if (placed > 0 && !take_payload(place_, placed)) return ended(kTampered);
    end_ += bytes - placed;
    if (FrameReader::Outcome outcome = parse(sink); outcome.state != FrameReader::State::kDrained)
      return outcome;
    if (bytes < direct + room) return {FrameReader::State::kDrained, {}};
    taken += bytes;
  }
  return {FrameReader::State::kBudget, {}};
}

// A small state machine over expected_: a head, then nothing, a message, or payload and its tag.
FrameReader::Outcome SealedReader::parse(FrameSink& sink) {
  for (;;) {
    switch (expected_) {
      case Part::kHead: {
        if (present() < kSealedHeadBytes) return {FrameReader::State::kDrained, {}};
        if (const Status status = open_head(sink); !status.is_ok())
          return {FrameReader::State::kEnded, status};
        if (header_.type == FrameType::kGoodbye) return {FrameReader::State::kEnded, Status::ok()};
        break;
      }
      case Part::kMessage: {
        if (present() < header_.payload_bytes + secure::kTagBytes) return {FrameReader::State::kDrained, {}};
        const std::byte* message = open_piece(header_.payload_bytes);
        if (message == nullptr) return ended(kTampered);
        expected_ = Part::kHead;
        sink.on_message({message, header_.payload_bytes});
        if (!admitted_) return {FrameReader::State::kBudget, {}};
        break;
      }
      case Part::kPayload: {
        const size_t bytes = std::min(present(), remaining_);
        if (bytes == 0) return {FrameReader::State::kDrained, {}};
        if (!take_payload(buffer_.get() + begin_, bytes)) return ended(kTampered);
        begin_ += bytes;
        break;
      }
      case Part::kPayloadTag: {
        if (present() < secure::kTagBytes) return {FrameReader::State::kDrained, {}};
        if (!opener_->finish(take_tag())) return ended(kTampered);
        expected_ = Part::kHead;
        sink.on_written(immediate_, {place_ - header_.payload_bytes, header_.payload_bytes});
        break;
      }
    }
  }
}

// The head is authentic here, but the peer may still break the rules, so it is checked like a plain one.
// The frames that begin a connection (path test, key exchange, refusal) are not allowed any more.
Status SealedReader::open_head(FrameSink& sink) {
  const std::byte* head = open_piece(sizeof(WriteHead));
  if (head == nullptr) return {Code::kLink, kTampered};
  std::memcpy(&header_, head, sizeof header_);
  std::memcpy(immediate_.data(), head + sizeof header_, immediate_.size());
  HDT_RETURN_IF_ERROR(check_frame(header_));
  if (!admitted_) HDT_RETURN_IF_ERROR(check_stranger(header_, messages_));
  switch (header_.type) {
    case FrameType::kMessage:
      expected_ = Part::kMessage;
      return Status::ok();
    case FrameType::kGoodbye:
      return Status::ok();
    case FrameType::kWrite:
      break;
    default:
      return {Code::kLink, "malformed frame: of the beginning of a connection, and not in its place"};
  }
  if (header_.payload_bytes == 0) {
    sink.on_written(immediate_, {});
    return Status::ok();
  }
  place_ = sink.locate(header_.region, header_.offset, header_.payload_bytes);
  if (place_ == nullptr) return wrote_outside(header_);
  remaining_ = header_.payload_bytes;
  expected_ = Part::kPayload;
  return opener_->begin() ? Status::ok() : Status(Code::kSystem, "OpenSSL cannot open what came");
}

// `from` may be place_ itself, if it was read there.
bool SealedReader::take_payload(std::byte* from, size_t bytes) {
  if (!opener_->update(from, bytes, place_)) return false;
  place_ += bytes;
  remaining_ -= bytes;
  if (remaining_ == 0) expected_ = Part::kPayloadTag;
  return true;
}

std::byte* SealedReader::open_piece(size_t bytes) {
  std::byte* const piece = buffer_.get() + begin_;
  if (!opener_->begin() || !opener_->update(piece, bytes, piece)) return nullptr;
  begin_ += bytes;
  return opener_->finish(take_tag()) ? piece : nullptr;
}

secure::Tag SealedReader::take_tag() {
  secure::Tag tag;
  std::memcpy(tag.data(), buffer_.get() + begin_, tag.size());
  begin_ += tag.size();
  return tag;
}

}  // namespace hdt::transport::tcp
