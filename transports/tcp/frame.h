// frame.h: the wire format of a TCP connection, a sequence of frames. A frame is a FrameHeader, for
// writes the immediate, and the payload. Integers are little endian, and there is no padding.
//
// A connection begins with kPath frames (path_test.h), followed by kSecure frames if it is to be
// protected (secure_start.h). Then come kMessage and kWrite frames, and at the end kGoodbye. On a
// protected connection the frames after kSecure are sealed, in the layout of sealed_reader.h. A change
// to anything here needs a new kFrameVersion.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/status.h"
#include "transports/transport.h"

namespace hdt::transport::tcp {

// The first bytes of every frame. Bytes of another protocol fail here, with a reason that says so.
inline constexpr uint32_t kFrameMagic = 0x46544448;  // "HDTF"
inline constexpr uint8_t kFrameVersion = 4;

enum class FrameType : uint8_t {
  kMessage = 1,  // the payload is the message
  kWrite = 2,    // the immediate, then the payload for (region, offset)
  kGoodbye = 3,  // the sender closes in order; nothing follows
  // The last frame of the end that accepted. The payload is the reason as text; `offset` is kRefusalLimit or
  // kRefusalConfig.
  kRefused = 4,
  kPath = 5,    // `region` is the step of the path test, kPathHere to kPathSeen; the payload is padding
  kSecure = 6,  // `region` is the step of the key exchange, kSecureOpening or kSecureExchange
};

// `offset` of a kRefused frame: the kind of the reason, from which the receiver makes its Code.
inline constexpr uint64_t kRefusalLimit = 0;   // the accepting process is at a limit: kSystem
inline constexpr uint64_t kRefusalConfig = 1;  // the two ends are configured differently: kConfig

// `region` of a kPath frame: its step. The meaning of `offset` depends on the step.
inline constexpr uint64_t kPathHere = 1;  // offset: the PathLimit of this connection, vanishes << 32 | passes
inline constexpr uint64_t kPathSize = 2;  // offset: the length in bytes of the IP packet that the frame makes
inline constexpr uint64_t kPathAll = 3;   // no larger size follows
inline constexpr uint64_t kPathSeen = 4;  // all sizes of the other end have arrived
inline constexpr uint32_t kMaxPathBytes = 32 << 10;

// `region` of a kSecure frame: its step.
inline constexpr uint64_t kSecureOpening = 1;   // offset: secure::Protection; payload: the node's name
inline constexpr uint64_t kSecureExchange = 2;  // the payload is bytes of the key exchange
inline constexpr uint32_t kMaxSecureBytes = 2 << 10;

// Foreign until check_frame() has accepted it. Fields that a type does not use are zero.
struct FrameHeader {
  uint32_t magic = kFrameMagic;
  uint8_t version = kFrameVersion;
  FrameType type = FrameType::kMessage;
  uint16_t reserved = 0;
  uint32_t payload_bytes = 0;  // behind the header and, for a write, the immediate
  uint32_t reserved2 = 0;
  uint64_t region = 0;  // of a write: the key; of kPath and kSecure: the step
  uint64_t offset = 0;  // of a write: in bytes from the start of the region; others: see above
};
static_assert(sizeof(FrameHeader) == 32 && offsetof(FrameHeader, payload_bytes) == 8 &&
              offsetof(FrameHeader, region) == 16 && offsetof(FrameHeader, offset) == 24);
static_assert(std::endian::native == std::endian::little, "frames are copied as they lie in memory");
inline constexpr size_t kMaxRefusalBytes = 512;  // longer reasons are cut
static_assert(kMaxWriteBytes <= UINT32_MAX && kMaxMessageBytes <= UINT32_MAX);

// The head of a frame as it is sent. Only writes and sealed frames use the immediate; other frames use
// the first sizeof(FrameHeader) bytes.
struct WriteHead {
  FrameHeader header;
  Immediate immediate;
};
static_assert(sizeof(WriteHead) == sizeof(FrameHeader) + kImmediateBytes);

// Checks everything about a foreign header that can be known without the region table. kVersion if the
// peer has another kFrameVersion, kLink for anything else. After success `payload_bytes` is within the
// type's limit, so a buffer of a fixed size holds every frame but a write.
inline Status check_frame(const FrameHeader& header) {
  const auto bad = [](const std::string& what) { return Status(Code::kLink, "malformed frame: " + what); };
  if (header.magic != kFrameMagic) return bad("the peer does not speak this protocol");
  if (header.version != kFrameVersion) {
    return {Code::kVersion, "the peer sends frames of version " + std::to_string(header.version) +
                                ", this side speaks " + std::to_string(kFrameVersion)};
  }
  if (header.reserved != 0 || header.reserved2 != 0) return bad("reserved bits are set");
  switch (header.type) {
    case FrameType::kMessage:
      if (header.payload_bytes == 0 || header.payload_bytes > kMaxMessageBytes) {
        return bad("message of " + std::to_string(header.payload_bytes) + " bytes");
      }
      if (header.region != 0 || header.offset != 0) return bad("message with a region");
      return Status::ok();
    case FrameType::kWrite:
      if (header.payload_bytes > kMaxWriteBytes) {
        return bad("write of " + std::to_string(header.payload_bytes) + " bytes");
      }
      return Status::ok();
    case FrameType::kRefused:
      if (header.payload_bytes > kMaxRefusalBytes || header.region != 0 || header.offset > kRefusalConfig) {
        return bad("a refusal that makes no sense");
      }
      return Status::ok();
    case FrameType::kGoodbye:
      if (header.payload_bytes != 0 || header.region != 0 || header.offset != 0) {
        return bad("goodbye with content");
      }
      return Status::ok();
    case FrameType::kPath:
      if (header.payload_bytes > kMaxPathBytes || header.region < kPathHere || header.region > kPathSeen) {
        return bad("test of the path by " + std::to_string(header.payload_bytes) + " bytes");
      }
      return Status::ok();
    case FrameType::kSecure:
      if (header.payload_bytes > kMaxSecureBytes || header.region < kSecureOpening ||
          header.region > kSecureExchange) {
        return bad("a key exchange that makes no sense");
      }
      return Status::ok();
  }
  return bad("unknown type " + std::to_string(static_cast<int>(header.type)));
}

// The reason to end a connection whose peer did more than a stranger may.
inline Status from_stranger(const std::string& what) {
  return {Code::kLink, what + " from a peer that has not shown who it is"};
}

// Checks a header, which check_frame() has accepted, against what a stranger may send (transport.h).
// `messages` counts the stranger's messages. kLink for a write, a long message or too many messages.
inline Status check_stranger(const FrameHeader& header, size_t& messages) {
  if (header.type == FrameType::kWrite) return from_stranger("a write");
  if (header.type != FrameType::kMessage) return Status::ok();
  if (header.payload_bytes > kMaxStrangerMessageBytes)
    return from_stranger("a message of " + std::to_string(header.payload_bytes) + " bytes");
  return ++messages > kMaxStrangerMessages ? from_stranger("too many messages") : Status::ok();
}

// A whole kRefused frame, ready to be sent. `why` is cut at kMaxRefusalBytes.
inline std::vector<std::byte> refusal(const std::string& why, uint64_t kind = kRefusalLimit) {
  FrameHeader header;
  header.type = FrameType::kRefused;
  header.offset = kind;
  header.payload_bytes = static_cast<uint32_t>(std::min(why.size(), kMaxRefusalBytes));
  std::vector<std::byte> frame(sizeof header + header.payload_bytes);
  std::memcpy(frame.data(), &header, sizeof header);
  std::memcpy(frame.data() + sizeof header, why.data(), header.payload_bytes);
  return frame;
}

// Makes foreign bytes fit for a log or a terminal: everything but printable ASCII becomes a question
// mark.
inline std::string plain_words(const char* text, size_t bytes) {
  std::string words(text, bytes);
  std::replace_if(
      words.begin(), words.end(), [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
  return words;
}

// The Status that a kRefused frame stands for: kConfig or kSystem, with the text of its payload.
inline Status refused_by_peer(const FrameHeader& header, const char* text) {
  return {header.offset == kRefusalConfig ? Code::kConfig : Code::kSystem,
          "the peer refuses the connection: " + plain_words(text, header.payload_bytes)};
}

// The reason to end a connection whose peer may not write where this header says.
inline Status wrote_outside(const FrameHeader& header) {
  return {Code::kLink, "the peer wrote outside of registered memory (" +
                           std::to_string(header.payload_bytes) + " bytes at offset " +
                           std::to_string(header.offset) + ")"};
}

}  // namespace hdt::transport::tcp
