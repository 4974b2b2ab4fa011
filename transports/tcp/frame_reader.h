// frame_reader.h: the incoming half of a connection that is not protected. It reads the socket,
// validates frames and hands them to a FrameSink. Payload of large writes is read straight into its
// final place; headers and small frames go through a buffer.
//
// A peer that is still a stranger (transport.h) is read differently: one frame at a time, never beyond
// its end, into a buffer of the size of its longest message. So a stranger costs little memory, and its
// owner can admit it between two messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "transports/tcp/frame.h"
#include "transports/transport.h"

namespace hdt::transport::tcp {

// The receiver of frames, that is, the connection. A FrameReader and a SealedReader call it inside
// read(), on the device's thread.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // The place of the payload [offset, offset + bytes) of a write. nullptr if the peer may not write
  // there. The arguments are foreign.
  virtual std::byte* locate(uint64_t region, uint64_t offset, size_t bytes) = 0;
  // A whole message has arrived. `message` is valid during the call only.
  virtual void on_message(std::span<const std::byte> message) = 0;
  // All payload of a write is in its place, `placed`.
  virtual void on_written(const Immediate& immediate, std::span<const std::byte> placed) = 0;
  // A kPath frame has arrived with all its padding.
  virtual void on_path(const FrameHeader& header) = 0;
  // A kSecure frame has arrived in full. Returns false if the bytes that follow belong to another
  // reader, or the connection is refused: the reader then stops with kStopped.
  virtual bool on_secure(const FrameHeader& header, std::span<const std::byte> content) = 0;
};

// One per connection, owned by it and used on the device's thread. It is replaced by a SealedReader if
// the connection becomes protected.
//
// It is in one of two modes. Until admit(), and after it until the stranger's frame under way is
// complete, it reads one frame at a time. Then it takes the larger buffer (`large_`) and stays in the
// fast mode.
class FrameReader {
 public:
  enum class State {
    kDrained,  // the socket has no more bytes for now
    kBudget,   // there may be more bytes; other connections have their turn first
    kEnded,    // the stream has ended, or is unusable
    kStopped,  // on_secure() returned false; take_rest() returns the bytes read beyond that frame
  };
  static constexpr size_t kBufferBytes = 64 << 10;
  struct Outcome {
    State state;
    Status reason;  // kEnded: why the connection ends; success after a goodbye
  };

  // Reads from the non-blocking socket and calls the sink for every complete frame. Stops after about
  // `budget` bytes; for a stranger, after one message.
  Outcome read(int fd, size_t budget, FrameSink& sink);
  // Returns the bytes that were read and not parsed. The reader must not be used afterwards.
  std::vector<std::byte> take_rest();
  // The peer is not a stranger any more.
  void admit() { admitted_ = true; }
  // True if payload of a write into `region` is still expected.
  bool inside_write_to(uint64_t region) const { return remaining_ > 0 && region_ == region; }

 private:
  // The two modes of read(): this one, and the loop in read().
  Outcome read_stranger(int fd, FrameSink& sink);
  void enlarge_buffer();
  // Checks the header of a stranger's frame, and limits how many frames the beginning of a connection
  // has.
  Status check_begun(const FrameHeader& header);
  // Handles all complete frames in the buffer. kDrained: more bytes are needed.
  Outcome parse(FrameSink& sink);
  // The head of a write is in the buffer: finds its place, and moves the part of the payload that is in
  // the buffer already.
  Status begin_write(const FrameHeader& header, FrameSink& sink);
  // `bytes` more of the payload are in their place; reports the write if they were the last.
  void took_payload(size_t bytes, FrameSink& sink);
  // The peer closed its socket and no goodbye came before.
  Outcome end_of_stream() const;

  // The first buffer holds the longest frame of a stranger; padding of kPath frames is not kept.
  static constexpr size_t kStrangerBytes = sizeof(FrameHeader) + kMaxStrangerMessageBytes;
  std::unique_ptr<std::byte[]> buffer_ = std::make_unique<std::byte[]>(kStrangerBytes);
  bool admitted_ = false;
  bool large_ = false;  // the buffer has kBufferBytes: the fast mode
  // The stranger's frame under way: how many of its bytes go into the buffer, and how many come behind them
  // that are read and dropped (the padding of kPath).
  size_t wanted_ = sizeof(FrameHeader);
  size_t padding_ = 0;
  bool checked_ = false;  // its header is complete and valid
  size_t messages_ = 0;   // messages of the stranger, the one under way included
  size_t begun_ = 0;      // kPath and kSecure frames of the stranger
  size_t begin_ = 0;      // unparsed bytes are [begin_, end_) of the buffer
  size_t end_ = 0;
  // The write under way, if remaining_ > 0. The place was validated when its head was read; on_withdrawn() of
  // the connection ends the connection if the region is taken away in the meantime.
  std::byte* place_ = nullptr;  // of the next byte of payload
  size_t remaining_ = 0;        // payload bytes that have not arrived
  size_t write_bytes_ = 0;      // payload bytes of the whole write
  uint64_t region_ = 0;
  Immediate immediate_{};
};

}  // namespace hdt::transport::tcp
