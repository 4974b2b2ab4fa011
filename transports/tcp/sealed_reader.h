// sealed_reader.h: the incoming half of a protected connection (transports/secure): the counterpart of
// FrameReader. Every frame is one piece of kSealedHeadBytes, whose tag is checked before a byte of it is
// used, and one piece with the payload if there is any:
//
//   head: FrameHeader, Immediate (zeroes unless it is a write) | tag      payload | tag
//
// The payload of a write goes to its place as it arrives, and the write is reported once its tag is
// accepted. So somebody in the middle who changes bytes can spoil the place of a write that the peer did
// make, and this ends the connection; such a write is never reported.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "transports/secure/secure.h"
#include "transports/tcp/frame_reader.h"

namespace hdt::transport::tcp {

inline constexpr size_t kSealedHeadBytes = sizeof(WriteHead) + secure::kTagBytes;

// Owned by its connection from the moment that the keys are there, and used on its thread. It reports
// through the same FrameSink and with the same Outcome as FrameReader.
class SealedReader {
 public:
  // `begun`: bytes that the FrameReader has read beyond the last frame in the clear; at most its buffer.
  SealedReader(std::unique_ptr<secure::Opener> opener, std::span<const std::byte> begun);

  // As FrameReader::read(). First parses the bytes that are in the buffer. Never returns kStopped.
  FrameReader::Outcome read(int fd, size_t budget, FrameSink& sink);
  // The peer is not a stranger any more. Until then each read() hands over one message.
  void admit() { admitted_ = true; }
  // True if the buffer holds bytes that may not have been parsed. No event reports them.
  bool has_more() const { return present() > 0; }
  // True if a write into `region` is not complete. The place may still be written to, by payload only.
  bool inside_write_to(uint64_t region) const {
    return (expected_ == Part::kPayload || expected_ == Part::kPayloadTag) && header_.region == region;
  }

 private:
  // The kinds of the next bytes of the stream.
  enum class Part : uint8_t { kHead, kMessage, kPayload, kPayloadTag };

  // Handles what is complete in the buffer. kDrained: more bytes are needed.
  FrameReader::Outcome parse(FrameSink& sink);
  // Opens and checks a head, which is in the buffer, and decides what follows it.
  Status open_head(FrameSink& sink);
  // Opens payload at `from`, in place or into place_. False: OpenSSL failed.
  bool take_payload(std::byte* from, size_t bytes);
  // Opens the piece [begin_, begin_ + bytes) in place, checks its tag, and takes both out of the buffer.
  // nullptr: it is not what the peer sealed.
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
  size_t messages_ = 0;   // messages of a stranger
  FrameHeader header_{};  // of the frame under way
  Immediate immediate_{};
  std::byte* place_ = nullptr;  // where the next byte of payload goes
  size_t remaining_ = 0;        // payload bytes that have not arrived
};

}  // namespace hdt::transport::tcp
