// frame_writer.cc: see frame_writer.h.
#include "transports/tcp/frame_writer.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>

namespace hdt::transport::tcp {

namespace {
constexpr size_t kMaxVectors = 64;
}

void FrameWriter::push_message(std::span<const std::byte> message, uint64_t token) {
  Frame& frame = queue_.emplace_back();
  frame.head.header.type = FrameType::kMessage;
  frame.head.header.payload_bytes = static_cast<uint32_t>(message.size());
  frame.head_bytes = sizeof(FrameHeader);
  frame.copy.assign(message.begin(), message.end());
  frame.payload = frame.copy.data();
  frame.payload_bytes = message.size();
  frame.token = token;
}

void FrameWriter::push_write(const void* data, size_t bytes, uint64_t region, uint64_t offset,
                             const Immediate& immediate, uint64_t token) {
  Frame& frame = queue_.emplace_back();
  frame.head.header.type = FrameType::kWrite;
  frame.head.header.payload_bytes = static_cast<uint32_t>(bytes);
  frame.head.header.region = region;
  frame.head.header.offset = offset;
  frame.head.immediate = immediate;
  frame.head_bytes = sizeof(WriteHead);
  frame.payload = data;
  frame.payload_bytes = bytes;
  frame.token = token;
  ++queued_writes_;
  queued_write_bytes_ += bytes;
}

FrameWriter::Flush FrameWriter::flush(int fd, std::vector<Sent>& sent) {
  while (!queue_.empty()) {
    std::array<iovec, kMaxVectors> vectors;
    size_t count = 0;
    size_t skip = front_done_;
    size_t wanted = 0;
    const auto add = [&](const void* data, size_t bytes) {
      if (skip >= bytes) {
        skip -= bytes;
        return;
      }
      vectors[count++] = {const_cast<std::byte*>(static_cast<const std::byte*>(data)) + skip, bytes - skip};
      wanted += bytes - skip;
      skip = 0;
    };
    for (auto frame = queue_.begin(); frame != queue_.end() && count + 2 <= kMaxVectors; ++frame) {
      add(&frame->head, frame->head_bytes);
      add(frame->payload, frame->payload_bytes);
    }
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = count;
    const ssize_t n = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK ? Flush::kBlocked : Flush::kFailed;
    }
    advance(static_cast<size_t>(n), sent);
    if (static_cast<size_t>(n) < wanted) return Flush::kBlocked;
  }
  return Flush::kEmpty;
}

void FrameWriter::advance(size_t bytes, std::vector<Sent>& sent) {
  front_done_ += bytes;
  while (!queue_.empty() && front_done_ >= queue_.front().total()) {
    const size_t rest = front_done_ - queue_.front().total();
    pop_front(sent);
    front_done_ = rest;
  }
}

void FrameWriter::give_up(std::vector<Sent>& given_up) {
  while (!queue_.empty()) pop_front(given_up);
}

void FrameWriter::pop_front(std::vector<Sent>& reports) {
  const Frame& frame = queue_.front();
  if (frame.is_write()) {
    --queued_writes_;
    queued_write_bytes_ -= frame.payload_bytes;
  }
  if (frame.is_write() || frame.token != 0) reports.push_back({frame.token, frame.payload_bytes});
  queue_.pop_front();
  front_done_ = 0;
}

}  // namespace hdt::transport::tcp
