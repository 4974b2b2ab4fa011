// sealed_output.h: frames as they go on a protected connection: a batch at a time is sealed and then handed
// to the kernel. What is encrypted lies in one buffer; what is only authenticated goes from the caller's
// memory, and is sent while it is in the caches from that.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "transports/secure/secure.h"
#include "transports/tcp/frame.h"

namespace hdt::transport::tcp {

class SealedOutput {
 public:
  explicit SealedOutput(std::unique_ptr<secure::Sealer> sealer);

  // A frame that is to be sealed next, or whose payload is sealed in part.
  struct Source {
    const WriteHead& head;
    const std::byte* payload;
    size_t bytes;
  };
  // Puts as much of the frame into the batch as there is room for. kMore: call it again with the same frame,
  // in the next batch. kFailed: OpenSSL has; nothing may be sent any more.
  enum class Sealed : uint8_t { kWhole, kMore, kFailed };
  Sealed add(const Source& frame);
  // Hands over what the socket takes of the batch; false: errno is set.
  bool send(int fd);

  bool pending() const { return done_ < bytes_; }
  // Some of a frame is in the batch or was in the last one, and the rest of it must follow.
  bool inside_frame() const { return pending() || begun_; }
  // Frames of the batch that have left whole and were not asked for yet.
  size_t take_left();
  // The batch has left: the next one may begin.
  void next_batch();

 private:
  bool add_part(const std::byte* from, size_t bytes, bool copy);
  bool add_tag();
  void append(const std::byte* data, size_t bytes);
  std::byte* free_place() { return buffer_.get() + used_; }
  size_t room() const;

  struct Segment {
    const std::byte* data;
    size_t bytes;
  };
  std::unique_ptr<secure::Sealer> sealer_;
  std::unique_ptr<std::byte[]> buffer_;
  size_t used_ = 0;                 // of the buffer
  std::vector<Segment> segments_;   // of the batch, in order
  std::vector<size_t> frame_ends_;  // in bytes of the batch
  size_t left_ = 0;                 // frames taken by take_left()
  size_t bytes_ = 0;                // of the batch
  size_t done_ = 0;                 // of them, handed over
  bool begun_ = false;              // the head of the frame is sealed and not all of its payload is
  size_t payload_done_ = 0;
};

}  // namespace hdt::transport::tcp
