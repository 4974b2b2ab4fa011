// frame_writer.h: the outgoing half of a connection: a queue of frames that is handed to the kernel many
// frames at a time. Messages are copied into the queue; the payload of a write is sent from the caller's
// memory.
//
// A frame goes through up to three states: queued; handed over (all its bytes are in the kernel);
// reported as sent. A frame that the kernel copied is reported as soon as it is handed over. One that
// the kernel reads from the caller's memory (MSG_ZEROCOPY, zero_copy.h) waits in `handed_` until the
// kernel is done with it, and everything behind it waits as well, because kSent is reported in order.
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

// One per connection, owned by it and used on the device's thread. It never blocks, and reports by
// appending to a vector, as its caller decides when kSent completions are made.
class FrameWriter {
 public:
  // A frame whose memory may be reused, to be reported as kSent. Messages with token 0 are not reported
  // and never appear here.
  struct Sent {
    uint64_t token;
    size_t bytes;
  };
  // The result of flush(). kEmpty: everything is handed over. kBlocked: the socket is full. kFailed: the
  // connection is lost, and errno is set.
  enum class Flush { kEmpty, kBlocked, kFailed };

  // Seals everything from now on. Nothing may have been handed over yet.
  void seal(std::unique_ptr<secure::Sealer> sealer) {
    sealed_ = std::make_unique<SealedOutput>(std::move(sealer));
  }

  // Queues a message, which is copied.
  void push_message(std::span<const std::byte> message, uint64_t token);
  // Queues a write. [data, data + bytes) must stay valid and unchanged until it is reported or given up.
  void push_write(const void* data, size_t bytes, uint64_t region, uint64_t offset,
                  const Immediate& immediate, uint64_t token);
  // Hands over as much of the queue as the socket takes. Appends to `sent` the frames that are done.
  // kFailed: errno is set.
  Flush flush(int fd, std::vector<Sent>& sent);
  // From now on payload of at least `least_bytes` is sent without a copy. 0: never. Not used on
  // protected connections.
  void enable_zero_copy(int fd, size_t least_bytes) { zero_copy_.enable(fd, least_bytes); }
  // To be called when the socket's error queue may have entries (EPOLLERR): reads the kernel's
  // notifications, and appends the frames that are done to `sent`.
  void read_errors(int fd, std::vector<Sent>& sent);
  // True while the kernel reads memory of frames that were handed over. The socket must then not be
  // closed without discard_on_close(), or the kernel would go on reading.
  bool kernel_reads() const { return zero_copy_.pending(); }
  // Empties the queue without sending it. Appends the frames that are to be reported as failed to
  // `given_up`.
  void give_up_queue(std::vector<Sent>& given_up);
  // The same, together with the frames that the kernel still reads.
  void give_up(std::vector<Sent>& given_up);

  // Hands over a goodbye in place of what is queued. Returns false if it cannot be sent: the peer is in
  // the middle of a frame, or the socket is full. The caller then closes without one.
  bool say_goodbye(int fd);
  // Writes that are not handed over completely, and the sum of their payload in bytes.
  size_t queued_writes() const { return queued_writes_; }
  size_t queued_write_bytes() const { return queued_write_bytes_; }

 private:
  // A frame in the queue.
  struct Frame {
    WriteHead head;
    size_t head_bytes;            // of `head` that are sent: the header alone, or with the immediate
    std::vector<std::byte> copy;  // the bytes of a message; empty for a write
    const void* payload;          // `copy`, or the memory of the caller
    size_t payload_bytes;
    uint64_t token;
    bool read_by_kernel = false;  // some of it was sent without a copy
    uint64_t last_send = 0;       // then: the number of the last such send (ZeroCopy::started)
    size_t total() const { return head_bytes + payload_bytes; }
    bool is_write() const { return head.header.type == FrameType::kWrite; }
  };
  // A frame that was handed over and waits to be reported. Those with read_by_kernel wait for the
  // kernel, the others only for those before them.
  struct Handed {
    Sent report;
    bool read_by_kernel;
    uint64_t last_send;
  };
  struct Batch;
  // flush() of a protected connection.
  Flush flush_sealed(int fd, std::vector<Sent>& sent);
  // Seals frames from the queue until the batch is full. False: OpenSSL failed.
  bool seal_batch();
  // Collects what the next sendmsg() sends.
  void gather(Batch& batch) const;
  // `bytes` more of the queue are in the kernel: removes the frames that are complete.
  void advance(size_t bytes, std::vector<Sent>& sent);
  // Appends all frames at the front of `handed_` that the kernel does not read any more.
  void report_done(std::vector<Sent>& sent);
  // Takes the front frame off the queue, and appends it to `to` if it is to be reported.
  void pop_front(std::deque<Handed>& to);

  std::deque<Frame> queue_;    // queued; the front one may be handed over in part
  std::deque<Handed> handed_;  // handed over and not reported, in order
  ZeroCopy zero_copy_;
  std::unique_ptr<SealedOutput> sealed_;  // null: the connection is not protected
  size_t sealed_frames_ = 0;              // frames at the front of the queue that are sealed in its batch
  size_t front_done_ = 0;                 // bytes of the front frame that are in the kernel; 0 if sealed_
  size_t queued_writes_ = 0;
  size_t queued_write_bytes_ = 0;
};

}  // namespace hdt::transport::tcp
