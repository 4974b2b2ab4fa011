// frame_writer.h: the outgoing half of a connection: a queue of frames, handed to the kernel many at a time,
// payload straight from the caller's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "transports/net/zero_copy.h"
#include "transports/tcp/frame.h"
#include "transports/tcp/sealed_output.h"
#include "transports/transport.h"

namespace hdt::transport::tcp {

class FrameWriter {
 public:
  // A frame that left the queue and is to be reported.
  struct Sent {
    uint64_t token;
    size_t bytes;
  };
  enum class Flush { kEmpty, kBlocked, kFailed };

  // From now on everything is sealed; nothing has been handed over yet.
  void seal(std::unique_ptr<secure::Sealer> sealer) {
    sealed_ = std::make_unique<SealedOutput>(std::move(sealer));
  }

  void push_message(std::span<const std::byte> message, uint64_t token);
  void push_write(const void* data, size_t bytes, uint64_t region, uint64_t offset,
                  const Immediate& immediate, uint64_t token);
  // Hands over what the socket takes; frames that are not read any more are appended to `sent`. kFailed:
  // errno is set.
  Flush flush(int fd, std::vector<Sent>& sent);
  // Large payload is sent without a copy from now on.
  void enable_zero_copy(int fd, size_t least_bytes) { zero_copy_.enable(fd, least_bytes); }
  // The socket's error queue has something: appends the frames that the kernel has done with.
  void read_errors(int fd, std::vector<Sent>& sent);
  // The kernel still reads memory of frames that were handed over.
  bool kernel_reads() const { return zero_copy_.pending(); }
  // Empties the queue without sending; the frames to report as failed are appended to `given_up`.
  void give_up_queue(std::vector<Sent>& given_up);
  // The same, and what the kernel still reads.
  void give_up(std::vector<Sent>& given_up);

  // Hands over a goodbye in place of what is queued. False: the peer is in the middle of a frame, or the
  // socket takes no more.
  bool say_goodbye(int fd);
  size_t queued_writes() const { return queued_writes_; }
  size_t queued_write_bytes() const { return queued_write_bytes_; }

 private:
  struct Frame {
    WriteHead head;
    size_t head_bytes;
    std::vector<std::byte> copy;  // of a message; a write's payload stays where it is
    const void* payload;
    size_t payload_bytes;
    uint64_t token;
    bool read_by_kernel = false;  // some of it was sent without a copy, last by send `last_send`
    uint64_t last_send = 0;
    size_t total() const { return head_bytes + payload_bytes; }
    bool is_write() const { return head.header.type == FrameType::kWrite; }
  };
  // Handed over; reported when the kernel is done with it and with all before it.
  struct Handed {
    Sent report;
    bool read_by_kernel;
    uint64_t last_send;
  };
  struct Batch;
  Flush flush_sealed(int fd, std::vector<Sent>& sent);
  bool seal_batch();
  void gather(Batch& batch) const;
  void advance(size_t bytes, std::vector<Sent>& sent);
  void report_done(std::vector<Sent>& sent);
  void pop_front(std::deque<Handed>& to);

  std::deque<Frame> queue_;
  std::deque<Handed> handed_;
  ZeroCopy zero_copy_;
  std::unique_ptr<SealedOutput> sealed_;
  size_t sealed_frames_ = 0;  // at the front of the queue, which are in its batch
  size_t front_done_ = 0;     // bytes of the front frame that are sent
  size_t queued_writes_ = 0;
  size_t queued_write_bytes_ = 0;
};

}  // namespace hdt::transport::tcp
