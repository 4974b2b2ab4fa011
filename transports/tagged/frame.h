// frame.h: what travels on a data path. Both ends number their frames from 0, and a frame's tag is its
// number. So a receive that is posted for number n can match no other frame, whatever the order in which
// the library delivers. Payload of large writes follows in segments, which have numbers and tags of their
// own. Little endian, no padding.
//
// A frame of a write is a FrameHeader, the immediate, and the payload if it is short. A frame of a message
// is a FrameHeader and the message. The other two types are a FrameHeader alone. A write of 2.5 MiB and
// then a message, for example, with segments of 1 MiB, on a data path that has carried 7 frames and 4
// segments:
//
//   tag 7: kWrite    tags kSegmentTag + 4, 5, 6: its payload    tag 8: kMessage
//
// The receiver posts the receives for tags 4 to 6 when it has checked the frame 7, and delivers the
// message 8 after the write.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/status.h"
#include "transports/transport.h"

namespace hdt::transport::tagged {

// A change to anything here needs a new kFrameVersion.
inline constexpr uint32_t kFrameMagic = 0x47544448;  // "HDTG"
inline constexpr uint8_t kFrameVersion = 1;

enum class FrameType : uint8_t {
  kProbe = 1,    // the first frame of each direction: shows that the data path works
  kMessage = 2,  // the message follows
  kWrite = 3,    // the immediate follows, then the payload if it is short
  kTaken = 4,    // nothing follows: carries `taken` when no other frame does
};

// Foreign until check_frame() has accepted it. `region` and `offset` are zero unless it is a write.
struct FrameHeader {
  uint32_t magic = kFrameMagic;
  uint8_t version = kFrameVersion;
  FrameType type = FrameType::kMessage;
  uint16_t reserved = 0;
  uint32_t payload_bytes = 0;  // of the message or the write, wherever its payload travels
  uint32_t reserved2 = 0;
  uint64_t taken = 0;   // frames of the other direction with lower numbers have been delivered
  uint64_t region = 0;  // the key
  uint64_t offset = 0;  // in bytes from the start of the region
};
static_assert(sizeof(FrameHeader) == 40 && offsetof(FrameHeader, taken) == 16);
static_assert(std::endian::native == std::endian::little, "frames are copied as they lie in memory");

// Payload up to this length travels in the frame. Libraries send such lengths eagerly, that is, with a
// copy at each end anyway.
inline constexpr size_t kInlineBytes = 4096;
// Receives for frames have this size.
inline constexpr size_t kMaxFrameBytes =
    sizeof(FrameHeader) + std::max(kMaxMessageBytes, kImmediateBytes + kInlineBytes);
// The length of a segment: enough to be worth an operation, and little enough for a poll to end soon.
inline constexpr size_t kMinSegmentBytes = 4096;
inline constexpr size_t kMaxSegmentBytes = size_t{1} << 20;
// How many segments are handed to the library ahead, at each end: some 2 MiB, at least 2 and at most 64
// segments. That keeps the library busy, and covers the time until the other end polls.
inline size_t segments_ahead(size_t segment_bytes) {
  constexpr size_t kBytesAhead = size_t{2} << 20;
  constexpr size_t kMostAhead = 64;
  return std::clamp(kBytesAhead / segment_bytes, size_t{2}, kMostAhead);
}
// The maximum of frames, kTaken not counted, that are on their way and that the other end has not taken.
inline constexpr uint64_t kFrameWindow = 64;

// Bit 63 of a tag distinguishes segments from frames.
inline constexpr uint64_t kSegmentTag = uint64_t{1} << 63;
// Segments of a write; 0: its payload travels in the frame.
inline uint64_t segments_of(uint64_t payload_bytes, size_t segment_bytes) {
  return payload_bytes <= kInlineBytes ? 0 : (payload_bytes + segment_bytes - 1) / segment_bytes;
}

// Checks everything about a foreign frame of `frame_bytes` bytes that can be known without the connection
// and the region table. kVersion if the peer has another kFrameVersion, kLink for anything else. After
// success the frame has the length that its header announces.
inline Status check_frame(const FrameHeader& header, size_t frame_bytes) {
  const auto bad = [](const std::string& what) { return Status(Code::kLink, "malformed frame: " + what); };
  if (header.magic != kFrameMagic) return bad("the peer does not speak this protocol");
  if (header.version != kFrameVersion) {
    return {Code::kVersion, "the peer sends frames of version " + std::to_string(header.version) +
                                ", this side speaks " + std::to_string(kFrameVersion)};
  }
  if (header.reserved != 0 || header.reserved2 != 0) return bad("reserved bits are set");
  if (header.type != FrameType::kWrite && (header.region != 0 || header.offset != 0))
    return bad("a region without a write");
  size_t expected = sizeof header;
  switch (header.type) {
    case FrameType::kProbe:
    case FrameType::kTaken:
      if (header.payload_bytes != 0) return bad("payload where none belongs");
      break;
    case FrameType::kMessage:
      if (header.payload_bytes == 0 || header.payload_bytes > kMaxMessageBytes) {
        return bad("message of " + std::to_string(header.payload_bytes) + " bytes");
      }
      expected += header.payload_bytes;
      break;
    case FrameType::kWrite:
      if (header.payload_bytes > kMaxWriteBytes) {
        return bad("write of " + std::to_string(header.payload_bytes) + " bytes");
      }
      expected += kImmediateBytes + (header.payload_bytes <= kInlineBytes ? header.payload_bytes : 0);
      break;
    default:
      return bad("unknown type " + std::to_string(static_cast<int>(header.type)));
  }
  if (expected != frame_bytes) return bad("its length does not fit its content");
  return Status::ok();
}

}  // namespace hdt::transport::tagged
