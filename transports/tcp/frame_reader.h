// frame_reader.h: the incoming half of a connection: bytes of the socket to validated frames. Payload of
// large writes is read straight into its place; headers and small frames go through a buffer. Of a stranger
// (transport.h) exactly one message at a time is read, into a buffer that holds no more.
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

// What a reader hands frames to.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // Where a write's payload goes, or nullptr if the peer may not write there.
  virtual std::byte* locate(uint64_t region, uint64_t offset, size_t bytes) = 0;
  virtual void on_message(std::span<const std::byte> message) = 0;
  virtual void on_written(const Immediate& immediate, std::span<const std::byte> placed) = 0;
  // All of a kPath frame has come.
  virtual void on_path(const FrameHeader& header) = 0;
  // All of a kSecure frame has come. False: what follows is no business of this reader.
  virtual bool on_secure(const FrameHeader& header, std::span<const std::byte> content) = 0;
};

class FrameReader {
 public:
  enum class State {
    kDrained,  // the socket has no more
    kBudget,   // there may be more: others first
    kEnded,    // the stream is over, or unusable
    kStopped,  // by on_secure(): take_rest() has what was read beyond
  };
  static constexpr size_t kBufferBytes = 64 << 10;
  struct Outcome {
    State state;
    Status reason;  // kEnded: why; success after a goodbye
  };

  // Reads about `budget` bytes at most; of a stranger one message at most.
  Outcome read(int fd, size_t budget, FrameSink& sink);
  // What was read and not handed over; the reader is not used any more.
  std::vector<std::byte> take_rest();
  // The peer is no stranger any more.
  void admit() { admitted_ = true; }
  // Is the payload of a write into `region` under way?
  bool inside_write_to(uint64_t region) const { return remaining_ > 0 && region_ == region; }

 private:
  Outcome read_stranger(int fd, FrameSink& sink);
  void enlarge_buffer();
  Status check_begun(const FrameHeader& header);
  Outcome parse(FrameSink& sink);
  Status begin_write(const FrameHeader& header, FrameSink& sink);
  void took_payload(size_t bytes, FrameSink& sink);
  Outcome end_of_stream() const;

  static constexpr size_t kStrangerBytes = sizeof(FrameHeader) + kMaxStrangerMessageBytes;
  std::unique_ptr<std::byte[]> buffer_ = std::make_unique<std::byte[]>(kStrangerBytes);
  bool admitted_ = false;
  bool large_ = false;  // the buffer, once a frame of a stranger is not under way any more
  // Of a stranger's frame: what of it is to be in the buffer, and what comes behind that and is not kept.
  size_t wanted_ = sizeof(FrameHeader);
  size_t padding_ = 0;
  bool checked_ = false;  // its header
  size_t messages_ = 0;   // that have begun
  size_t begun_ = 0;      // frames of a connection's beginning
  size_t begin_ = 0;      // unparsed bytes are [begin_, end_)
  size_t end_ = 0;
  // The write under way, if remaining_ > 0.
  std::byte* place_ = nullptr;
  size_t remaining_ = 0;
  size_t write_bytes_ = 0;
  uint64_t region_ = 0;
  Immediate immediate_{};
};

}  // namespace hdt::transport::tcp
