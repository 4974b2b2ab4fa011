// frame_reader.cc: reads frames of a connection that is not protected; see frame_reader.h.
#include "transports/tcp/frame_reader.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace hdt::transport::tcp {

namespace {
// Behind a large payload no more is read into the buffer than holds the next header: the bytes after
// that header are payload again, and should be read to their place without a copy.
constexpr size_t kLargePayload = 32 << 10;
constexpr size_t kLookAhead = 2 << 10;
static_assert(kLookAhead >= sizeof(WriteHead));
// A connection begins with at most eleven kPath frames (kHere, eight sizes, kAll, kSeen) and a few
// kSecure frames. The limit keeps a stranger from sending padding for ever.
constexpr size_t kMaxBegun = 64;
}  // namespace

// The fast mode. Each round reads with one readv(): first the rest of the write's payload to its place,
// then whatever follows into the buffer. parse() then handles the frames in the buffer.
//
// Between two rounds either remaining_ > 0 and the buffer is empty, or the buffer holds less than one
// frame. A frame that has to be complete in the buffer (message, path test, key exchange, refusal) is
// shorter than kBufferBytes by check_frame(), so there is always room for its rest.
FrameReader::Outcome FrameReader::read(int fd, size_t budget, FrameSink& sink) {
  if (!large_) {
    // A frame that began as a stranger's is completed as one: the small buffer and the counts are made
    // for it.
    if (!admitted_ || checked_) return read_stranger(fd, sink);
    enlarge_buffer();
  }
  size_t taken = 0;
  while (taken < budget) {
    if (begin_ > 0) {  // at most one incomplete frame is left, so little is moved
      std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    std::array<iovec, 2> vectors;
    int count = 0;
    size_t room = kBufferBytes - end_;
    if (remaining_ > 0) {
      vectors[count++] = {place_, remaining_};
      if (remaining_ >= kLargePayload) room = std::min(room, kLookAhead);
    }
    vectors[count++] = {buffer_.get() + end_, room};
    const size_t wanted = remaining_ + room;

    const ssize_t got = ::readv(fd, vectors.data(), count);
    if (got == 0) return end_of_stream();
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {State::kDrained, {}};
      return {State::kEnded, Status(Code::kLink, std::strerror(errno))};
    }
    const auto bytes = static_cast<size_t>(got);
    const size_t payload = std::min(bytes, remaining_);
    if (payload > 0) took_payload(payload, sink);
    end_ += bytes - payload;
    if (Outcome outcome = parse(sink); outcome.state != State::kDrained) return outcome;
    // The socket had less than there was room for, so another read would only return EAGAIN.
    if (bytes < wanted) return {State::kDrained, {}};
    taken += bytes;
  }
  return {State::kBudget, {}};
}

// The first read after the admission. The old buffer may hold part of a header.
void FrameReader::enlarge_buffer() {
  auto larger = std::make_unique<std::byte[]>(kBufferBytes);
  std::memcpy(larger.get(), buffer_.get(), end_);  // of a header
  buffer_ = std::move(larger);
  large_ = true;
}

Status FrameReader::check_begun(const FrameHeader& header) {
  HDT_RETURN_IF_ERROR(check_frame(header));
  const bool begins = header.type == FrameType::kPath || header.type == FrameType::kSecure;
  if (begins && ++begun_ > kMaxBegun) return from_stranger("an endless beginning");
  return check_stranger(header, messages_);
}

// Reads one frame in steps: the header, its check, then the content. It never reads beyond the frame
// that has begun, so what follows stays in the kernel and the socket stays readable (level-triggered).
// The content of kPath is padding and is dropped, as it may be larger than the buffer.
//
// It returns after each message, so that the owner sees it and may admit the peer before the next frame
// is judged by a stranger's rules.
FrameReader::Outcome FrameReader::read_stranger(int fd, FrameSink& sink) {
  std::array<std::byte, 4096> nowhere;
  for (;;) {
    const bool keeps = padding_ == 0;
    const ssize_t got = keeps ? ::read(fd, buffer_.get() + end_, wanted_ - end_)
                              : ::read(fd, nowhere.data(), std::min(padding_, nowhere.size()));
    if (got == 0) return end_of_stream();
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {State::kDrained, {}};
      return {State::kEnded, Status(Code::kLink, std::strerror(errno))};
    }
    if (keeps) {
      end_ += static_cast<size_t>(got);
    } else {
      padding_ -= static_cast<size_t>(got);
    }
    if (end_ < wanted_ || padding_ > 0) continue;
    // The header is complete (first time), or the whole frame is (second time, or a frame without content).
    FrameHeader header;
    std::memcpy(&header, buffer_.get(), sizeof header);
    if (!checked_) {
      if (Status status = check_begun(header); !status.is_ok()) return {State::kEnded, status};
      checked_ = true;
      (header.type == FrameType::kPath ? padding_ : wanted_) += header.payload_bytes;
      if (end_ < wanted_ || padding_ > 0) continue;
    }
    checked_ = false;
    wanted_ = sizeof header;
    end_ = 0;
    const std::byte* content = buffer_.get() + sizeof header;
    switch (header.type) {
      case FrameType::kGoodbye:
        return {State::kEnded, Status::ok()};
      case FrameType::kRefused:
        return {State::kEnded, refused_by_peer(header, reinterpret_cast<const char*>(content))};
      case FrameType::kPath:
        sink.on_path(header);
        // kPathSeen may open the connection. The owner must get kConnected before anything that follows,
        // so the read ends here.
        if (admitted_ || header.region == kPathSeen) return {State::kBudget, {}};
        continue;
      case FrameType::kSecure:
        if (!sink.on_secure(header, {content, header.payload_bytes})) return {State::kStopped, {}};
        if (admitted_) return {State::kBudget, {}};
        continue;
      default:  // a message: check_stranger() has refused writes
        sink.on_message({content, header.payload_bytes});
        return {State::kBudget, {}};
    }
  }
}

// Ends when a frame is incomplete, or when a write's payload is still expected: that is read by read().
// A goodbye or a refusal ends the connection; what the peer sent behind it is not looked at.
FrameReader::Outcome FrameReader::parse(FrameSink& sink) {
  while (remaining_ == 0 && end_ - begin_ >= sizeof(FrameHeader)) {
    FrameHeader header;
    std::memcpy(&header, buffer_.get() + begin_, sizeof header);
    if (Status status = check_frame(header); !status.is_ok()) return {State::kEnded, status};
    if (header.type == FrameType::kGoodbye) return {State::kEnded, Status::ok()};
    const size_t frame_bytes = sizeof header + header.payload_bytes;
    if (header.type == FrameType::kRefused) {
      if (end_ - begin_ < frame_bytes) break;
      const auto* text = reinterpret_cast<const char*>(buffer_.get() + begin_ + sizeof header);
      return {State::kEnded, refused_by_peer(header, text)};
    }
    if (header.type == FrameType::kMessage) {
      if (end_ - begin_ < frame_bytes) break;
      sink.on_message({buffer_.get() + begin_ + sizeof header, header.payload_bytes});
      begin_ += frame_bytes;
    } else if (header.type == FrameType::kPath) {
      if (end_ - begin_ < frame_bytes) break;
      begin_ += frame_bytes;
      sink.on_path(header);
    } else if (header.type == FrameType::kSecure) {
      if (end_ - begin_ < frame_bytes) break;
      const std::span content(buffer_.get() + begin_ + sizeof header, header.payload_bytes);
      begin_ += frame_bytes;
      if (!sink.on_secure(header, content)) return {State::kStopped, {}};
    } else {
      if (end_ - begin_ < sizeof(WriteHead)) break;
      if (Status status = begin_write(header, sink); !status.is_ok()) return {State::kEnded, status};
    }
  }
  if (begin_ == end_) begin_ = end_ = 0;  // nothing is left: the next read needs no move
  return {State::kDrained, {}};
}

// A write without payload has no place to check, and is complete at once.
Status FrameReader::begin_write(const FrameHeader& header, FrameSink& sink) {
  place_ = nullptr;
  if (header.payload_bytes > 0) {
    place_ = sink.locate(header.region, header.offset, header.payload_bytes);
    if (place_ == nullptr) return wrote_outside(header);
  }
  std::memcpy(immediate_.data(), buffer_.get() + begin_ + sizeof header, immediate_.size());
  begin_ += sizeof(WriteHead);
  region_ = header.region;
  write_bytes_ = header.payload_bytes;
  remaining_ = header.payload_bytes;
  const size_t present = std::min(remaining_, end_ - begin_);
  if (present > 0) std::memcpy(place_, buffer_.get() + begin_, present);
  begin_ += present;
  took_payload(present, sink);
  return Status::ok();
}

void FrameReader::took_payload(size_t bytes, FrameSink& sink) {
  remaining_ -= bytes;
  if (place_ != nullptr) place_ += bytes;
  if (remaining_ == 0) sink.on_written(immediate_, {place_ - write_bytes_, write_bytes_});
}

std::vector<std::byte> FrameReader::take_rest() {
  std::vector<std::byte> rest(buffer_.get() + begin_, buffer_.get() + end_);
  buffer_.reset();
  begin_ = end_ = 0;
  return rest;
}

FrameReader::Outcome FrameReader::end_of_stream() const {
  const bool inside = remaining_ > 0 || end_ > begin_;
  return {State::kEnded, Status(Code::kLink, inside ? "the peer closed in the middle of a frame"
                                                    : "the peer closed without a goodbye (did it crash?)")};
}

}  // namespace hdt::transport::tcp
