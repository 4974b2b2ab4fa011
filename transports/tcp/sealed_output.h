// sealed_output.h: the frames of a protected connection on their way to the kernel. A batch of frames is
// sealed, and then sent while its bytes are still in the caches. The layout of a sealed frame is in
// sealed_reader.h. Encrypted bytes lie in one buffer; payload that is only authenticated is sent from
// the caller's memory.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "transports/secure/secure.h"
#include "transports/tcp/frame.h"

namespace hdt::transport::tcp {

// Owned by the FrameWriter of a connection, and used on its thread. It takes frames from the queue that
// the writer keeps: their heads, messages and payload must stay unchanged until take_left() has counted
// them.
class SealedOutput {
 public:
  explicit SealedOutput(std::unique_ptr<secure::Sealer> sealer);

  // A frame to be sealed, or one whose payload is sealed in part.
  struct Source {
    const WriteHead& head;
    const std::byte* payload;
    size_t bytes;
  };
  // kWhole: the frame is in the batch. kMore: the batch is full; call add() with the same frame in the
  // next batch. kFailed: OpenSSL failed, and nothing may be sent any more.
  enum class Sealed : uint8_t { kWhole, kMore, kFailed };
  // Puts as much of the frame into the batch as there is room for.
  Sealed add(const Source& frame);
  // Hands as much of the batch to the kernel as the socket takes, with one system call. False: errno is
  // set (EAGAIN: the socket is full).
  bool send(int fd);

  // True if bytes of the batch are not handed over.
  bool pending() const { return done_ < bytes_; }
  // True if the peer has or will have the beginning of a frame whose rest is not sealed, or if sealed
  // bytes are not sent: nothing else may be sent now.
  bool inside_frame() const { return pending() || begun_; }
  // How many frames of the batch were completely handed over since the last call.
  size_t take_left();
  // Begins the next batch; the batch must have been handed over.
  void next_batch();

 private:
  // Seals a part. `copy`: its sealed bytes go into the buffer even if nothing is encrypted.
  bool add_part(const std::byte* from, size_t bytes, bool copy);
  // Ends the piece and appends its tag.
  bool add_tag();
  // Appends bytes to the segments of the batch; joins them to the last segment if they follow it in
  // memory.
  void append(const std::byte* data, size_t bytes);
  std::byte* free_place() { return buffer_.get() + used_; }
  // Bytes that the batch still takes; 0: too few for a head, so the batch is full.
  size_t room() const;

  // Bytes of the batch, in buffer_ or in the memory of a caller.
  struct Segment {
    const std::byte* data;
    size_t bytes;
  };
  std::unique_ptr<secure::Sealer> sealer_;
  std::unique_ptr<std::byte[]> buffer_;
  size_t used_ = 0;                 // bytes of buffer_ in use
  std::vector<Segment> segments_;   // of the batch, in order
  std::vector<size_t> frame_ends_;  // the end of each complete frame, in bytes of the batch
  size_t left_ = 0;                 // frames that take_left() has counted
  size_t bytes_ = 0;                // length of the batch
  size_t done_ = 0;                 // bytes of it that were handed over
  // A frame's head is sealed, and its payload is not, or only in part. Holds from batch to batch.
  bool begun_ = false;
  size_t payload_done_ = 0;  // then: the bytes of its payload that are sealed
};

}  // namespace hdt::transport::tcp
