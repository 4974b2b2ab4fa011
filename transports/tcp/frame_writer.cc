// frame_writer.cc: queues frames and hands them to the kernel; see frame_writer.h.
#include "transports/tcp/frame_writer.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>

namespace hdt::transport::tcp {

namespace {
// Pieces of one sendmsg(): 32 frames of two pieces each. The kernel allows 1024.
constexpr size_t kMaxVectors = 64;
}  // namespace

void FrameWriter::push_message(std::span<const std::byte> message, uint64_t token) {
  // The frame is completed before it is queued, because copying may throw: half a frame in the queue would be
  // sent as the beginning of the next one.
  Frame frame{};
  frame.head.header.type = FrameType::kMessage;
  frame.head.header.payload_bytes = static_cast<uint32_t>(message.size());
  frame.head_bytes = sizeof(FrameHeader);
  frame.copy.assign(message.begin(), message.end());
  frame.payload = frame.copy.data();
  frame.payload_bytes = message.size();
  frame.token = token;
  queue_.push_back(std::move(frame));
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

// The data of one sendmsg(): the pieces of many frames, or of one large payload that is not copied.
struct FrameWriter::Batch {
  std::array<iovec, kMaxVectors> vectors;
  size_t count = 0;
  size_t bytes = 0;
  int flags = 0;  // MSG_ZEROCOPY or MSG_MORE; 0 for ordinary frames
};

// Walks the queue from its front, leaves out the first front_done_ bytes, and stops at kMaxVectors.
// `skip` is what still has to be left out.
void FrameWriter::gather(Batch& batch) const {
  size_t skip = front_done_;
  const auto add = [&](const void* data, size_t bytes) {
    if (skip >= bytes) {
      skip -= bytes;
      return;
    }
    auto* from = const_cast<std::byte*>(static_cast<const std::byte*>(data)) + skip;
    batch.vectors[batch.count++] = {from, bytes - skip};
    batch.bytes += bytes - skip;
    skip = 0;
  };
  for (auto frame = queue_.begin(); frame != queue_.end() && batch.count + 2 <= kMaxVectors; ++frame) {
    add(&frame->head, frame->head_bytes);
    if (frame->is_write() && zero_copy_.wanted(frame->payload_bytes)) {
      // Heads and messages lie in the queue, which frees them, so the kernel must copy them. The large
      // payload is a batch of its own: this batch ends before it, with MSG_MORE, as more follows at
      // once; the next one holds nothing but the payload.
      batch.flags = batch.count > 0 ? MSG_MORE : MSG_ZEROCOPY;
      if (batch.count == 0) add(frame->payload, frame->payload_bytes);
      return;
    }
    add(frame->payload, frame->payload_bytes);
  }
}

// Sends batch after batch until the queue is empty or the socket takes less than a batch. ENOBUFS for a
// zero-copy send means that the kernel has no room for its notifications, or may lock no more pages;
// that batch is sent again as a copy.
FrameWriter::Flush FrameWriter::flush(int fd, std::vector<Sent>& sent) {
  if (sealed_ != nullptr) return flush_sealed(fd, sent);
  bool copy = false;  // the next batch is copied, whatever its size
  while (!queue_.empty()) {
    Batch batch;
    gather(batch);
    if (copy) batch.flags = 0;
    msghdr message{};
    message.msg_iov = batch.vectors.data();
    message.msg_iovlen = batch.count;
    const ssize_t n = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT | batch.flags);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == ENOBUFS && batch.flags == MSG_ZEROCOPY) {
        copy = true;
        continue;
      }
      return errno == EAGAIN || errno == EWOULDBLOCK ? Flush::kBlocked : Flush::kFailed;
    }
    copy = false;
    if (batch.flags == MSG_ZEROCOPY) {
      queue_.front().read_by_kernel = true;
      queue_.front().last_send = zero_copy_.started();
    }
    advance(static_cast<size_t>(n), sent);
    if (static_cast<size_t>(n) < batch.bytes) return Flush::kBlocked;
  }
  return Flush::kEmpty;
}

// Seals a batch, sends it completely, then seals the next one. A batch that was sealed must be sent in
// any case: the sealer's counters have advanced, so leaving it out would make everything after it
// invalid. The kernel copies sealed bytes, so a frame is done as soon as it is handed over.
FrameWriter::Flush FrameWriter::flush_sealed(int fd, std::vector<Sent>& sent) {
  for (;;) {
    if (!sealed_->pending()) {
      sealed_->next_batch();
      if (!seal_batch()) {
        errno = EIO;
        return Flush::kFailed;
      }
      if (!sealed_->pending()) return Flush::kEmpty;
    }
    if (!sealed_->send(fd)) return errno == EAGAIN || errno == EWOULDBLOCK ? Flush::kBlocked : Flush::kFailed;
    for (size_t left = sealed_->take_left(); left > 0; --left) {
      pop_front(handed_);
      --sealed_frames_;
    }
    report_done(sent);
    if (sealed_->pending()) return Flush::kBlocked;
  }
}

// A frame that does not fit in the batch goes on in the next one (kMore), with the same frame.
bool FrameWriter::seal_batch() {
  while (sealed_frames_ < queue_.size()) {
    const Frame& frame = queue_[sealed_frames_];
    const SealedOutput::Sealed sealed =
        sealed_->add({frame.head, static_cast<const std::byte*>(frame.payload), frame.payload_bytes});
    if (sealed != SealedOutput::Sealed::kWhole) return sealed == SealedOutput::Sealed::kMore;
    ++sealed_frames_;
  }
  return true;
}

// A goodbye may only stand where a frame begins. On a plain connection that is the case if no byte of
// the front frame is in the kernel. On a protected one, no sealed byte may be left to send, and no
// payload may be half sealed; then the batch has left and its place is free.
bool FrameWriter::say_goodbye(int fd) {
  WriteHead goodbye{};
  goodbye.header.type = FrameType::kGoodbye;
  if (sealed_ == nullptr) {
    return front_done_ == 0 &&
           ::send(fd, &goodbye.header, sizeof goodbye.header, MSG_NOSIGNAL | MSG_DONTWAIT) ==
               static_cast<ssize_t>(sizeof goodbye.header);
  }
  if (sealed_->inside_frame()) return false;
  sealed_->next_batch();
  return sealed_->add({goodbye, nullptr, 0}) == SealedOutput::Sealed::kWhole && sealed_->send(fd) &&
         !sealed_->pending();
}

// pop_front() sets front_done_ to 0, so the rest is set after it.
void FrameWriter::advance(size_t bytes, std::vector<Sent>& sent) {
  front_done_ += bytes;
  while (!queue_.empty() && front_done_ >= queue_.front().total()) {
    const size_t rest = front_done_ - queue_.front().total();
    pop_front(handed_);
    front_done_ = rest;
  }
  report_done(sent);
}

void FrameWriter::report_done(std::vector<Sent>& sent) {
  while (!handed_.empty() &&
         (!handed_.front().read_by_kernel || zero_copy_.done(handed_.front().last_send))) {
    sent.push_back(handed_.front().report);
    handed_.pop_front();
  }
}

void FrameWriter::read_errors(int fd, std::vector<Sent>& sent) {
  if (!zero_copy_.pending()) return;
  zero_copy_.read(fd);
  report_done(sent);
}

// The batch is dropped with the queue, so the connection must end after it. The frames go through a
// queue of their own, as those in `handed_` may not be reported yet.
void FrameWriter::give_up_queue(std::vector<Sent>& given_up) {
  sealed_frames_ = 0;
  std::deque<Handed> queued;
  while (!queue_.empty()) pop_front(queued);
  for (const Handed& frame : queued) given_up.push_back(frame.report);
}

// The frames in `handed_` come first: they are the older ones.
void FrameWriter::give_up(std::vector<Sent>& given_up) {
  for (const Handed& frame : handed_) given_up.push_back(frame.report);
  handed_.clear();
  give_up_queue(given_up);
}

void FrameWriter::pop_front(std::deque<Handed>& to) {
  const Frame& frame = queue_.front();
  if (frame.is_write() || frame.token != 0) {
    to.push_back({{frame.token, frame.payload_bytes}, frame.read_by_kernel, frame.last_send});
  }
  if (frame.is_write()) {
    --queued_writes_;
    queued_write_bytes_ -= frame.payload_bytes;
  }
  queue_.pop_front();
  front_done_ = 0;
}

}  // namespace hdt::transport::tcp
