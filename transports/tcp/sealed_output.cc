// sealed_output.cc: seals frames in batches and sends them; see sealed_output.h.
#include "transports/tcp/sealed_output.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace hdt::transport::tcp {

namespace {

// Bytes of a batch: few enough to stay in the caches from sealing to sending.
constexpr size_t kBatchBytes = 128 << 10;
// Pieces of one sendmsg().
constexpr size_t kMaxSegments = 64;
// Payload that is not encrypted is copied if it is not longer than this: one more piece of sendmsg()
// costs as much as the copy.
constexpr size_t kCopiedBytes = 2 << 10;
// With less room than this the batch is full. It is enough for a head, a part of payload that is copied,
// and both tags.
constexpr size_t kLeastRoom = sizeof(WriteHead) + 2 * secure::kTagBytes + kCopiedBytes;

}  // namespace

SealedOutput::SealedOutput(std::unique_ptr<secure::Sealer> sealer)
    : sealer_(std::move(sealer)), buffer_(std::make_unique<std::byte[]>(kBatchBytes)) {}

// A call of add() makes at most three segments. The limit counts the larger of both lengths: used_
// bounds the buffer, and bytes_ bounds what a batch sends from callers' memory.
size_t SealedOutput::room() const {
  const size_t taken = std::max(used_, bytes_);
  return segments_.size() + 3 > kMaxSegments || taken + kLeastRoom > kBatchBytes ? 0 : kBatchBytes - taken;
}

// 1. The head is a piece of its own, header and immediate, for every type of frame, so the peer can
//    check it before it uses any of it.
// 2. The payload is a second piece. It may be sealed in several parts over several batches; the tag ends
//    it.
// Room for the tag is kept free when a part is cut.
SealedOutput::Sealed SealedOutput::add(const Source& frame) {
  if (room() == 0) return Sealed::kMore;
  if (!begun_) {
    if (!sealer_->begin() ||
        !add_part(reinterpret_cast<const std::byte*>(&frame.head), sizeof frame.head, true) || !add_tag())
      return Sealed::kFailed;
    if (frame.bytes > 0 && !sealer_->begin()) return Sealed::kFailed;
    begun_ = frame.bytes > 0;
    payload_done_ = 0;
  }
  if (begun_) {
    const size_t space = room();
    if (space == 0) return Sealed::kMore;
    const size_t part = std::min(frame.bytes - payload_done_, space - secure::kTagBytes);
    if (!add_part(frame.payload + payload_done_, part, part <= kCopiedBytes)) return Sealed::kFailed;
    payload_done_ += part;
    if (payload_done_ < frame.bytes) return Sealed::kMore;
    if (!add_tag()) return Sealed::kFailed;
    begun_ = false;
  }
  frame_ends_.push_back(bytes_);
  return Sealed::kWhole;
}

// Without encryption the bytes on the wire are the bytes at `from`, so they need not be moved.
bool SealedOutput::add_part(const std::byte* from, size_t bytes, bool copy) {
  if (!copy && !sealer_->encrypts()) {
    if (!sealer_->update(from, bytes, nullptr)) return false;
    append(from, bytes);
    return true;
  }
  std::byte* const to = free_place();
  if (!sealer_->update(from, bytes, to)) return false;
  used_ += bytes;
  append(to, bytes);
  return true;
}

bool SealedOutput::add_tag() {
  secure::Tag tag;
  if (!sealer_->finish(tag)) return false;
  std::byte* const to = free_place();
  std::memcpy(to, tag.data(), tag.size());
  used_ += tag.size();
  append(to, tag.size());
  return true;
}

void SealedOutput::append(const std::byte* data, size_t bytes) {
  bytes_ += bytes;
  if (!segments_.empty() && segments_.back().data + segments_.back().bytes == data) {
    segments_.back().bytes += bytes;
  } else {
    segments_.push_back({data, bytes});
  }
}

// Leaves out the first done_ bytes, which were handed over by earlier calls.
bool SealedOutput::send(int fd) {
  std::array<iovec, kMaxSegments> vectors;
  size_t count = 0;
  size_t skip = done_;
  for (const Segment& segment : segments_) {
    if (skip >= segment.bytes) {
      skip -= segment.bytes;
      continue;
    }
    vectors[count++] = {const_cast<std::byte*>(segment.data) + skip, segment.bytes - skip};
    skip = 0;
  }
  msghdr message{};
  message.msg_iov = vectors.data();
  message.msg_iovlen = count;
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return false;
  done_ += static_cast<size_t>(sent);
  return true;
}

size_t SealedOutput::take_left() {
  const size_t before = left_;
  while (left_ < frame_ends_.size() && frame_ends_[left_] <= done_) ++left_;
  return left_ - before;
}

void SealedOutput::next_batch() {
  used_ = bytes_ = done_ = left_ = 0;
  segments_.clear();
  frame_ends_.clear();
}

}  // namespace hdt::transport::tcp
