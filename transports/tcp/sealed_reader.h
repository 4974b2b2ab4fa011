// sealed_reader.h: the incoming half of a connection that is protected (transports/secure): what FrameReader
// is for one that is not. Every frame is one piece of kSealedHeadBytes, which is opened before a byte of it
// is looked at, and one piece with the payload, if there is any:
//
//   head: FrameHeader, Immediate (of messages: zeroes) | tag      payload | tag
//
// The payload of a write goes to its place as it comes, and is reported once its tag is accepted. So a
// stranger in the middle can make wrong bytes of a write that the peer did make, in the place that it was
// made for, and ends the connection by it; such a write is never reported.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "transports/secure/secure.h"
#include "transports/tcp/frame_reader.h"

namespace hdt::transport::tcp {

inline constexpr size_t kSealedHeadBytes = sizeof(WriteHead) + secure::kTagBytes;

class SealedReader {
 public:
  // `begun`: what was read already; at most a buffer's length.
  SealedReader(std::unique_ptr<secure::Opener> opener, std::span<const std::byte> begun);

  // As FrameReader's.
  FrameReader::Outcome read(int fd, size_t budget, FrameSink& sink);
  // The peer is no stranger any more. Until then one message is handed over by each read().
  void admit() { admitted_ = true; }
  // Something may have been read that was not looked at.
  bool has_more() const { return present() > 0; }
  bool inside_write_to(uint64_t region) const {
    return (expected_ == Part::kPayload || expected_ == Part::kPayloadTag) && header_.region == region;
  }

 private:
  enum class Part : uint8_t { kHead, kMessage, kPayload, kPayloadTag };

  FrameReader::Outcome parse(FrameSink& sink);
  Status open_head(FrameSink& sink);
  bool take_payload(std::byte* from, size_t bytes);
  // Opens [begin_, begin_ + bytes) in its place, and takes it and its tag out of the buffer.
  std::byte* open_piece(size_t bytes);
  secure::Tag take_tag();
  size_t present() const { return end_ - begin_; }

  static constexpr size_t kBufferBytes = FrameReader::kBufferBytes;
  std::unique_ptr<secure::Opener> opener_;
  std::unique_ptr<std::byte[]> buffer_ = std::make_unique<std::byte[]>(kBufferBytes);
  size_t begin_ = 0;  // [begin_, end_) is not parsed yet
  size_t end_ = 0;
  Part expected_ = Part::kHead;
  bool admitted_ = false;
  size_t messages_ = 0;   // of a stranger
  FrameHeader header_{};  // of the frame that has begun
  Immediate immediate_{};
  std::byte* place_ = nullptr;  // of the payload that has not come
  size_t remaining_ = 0;
};

}  // namespace hdt::transport::tcp
