// frame.h: what travels on a TCP connection: frames of a fixed header, an immediate (writes only) and a
// payload. Little endian, no padding.
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

inline constexpr uint32_t kFrameMagic = 0x46544448;  // "HDTF"
inline constexpr uint8_t kFrameVersion = 4;

enum class FrameType : uint8_t {
  kMessage = 1,  // payload: the message
  kWrite = 2,    // immediate, then payload for region + offset
  kGoodbye = 3,  // the sender closes in order; nothing follows
  kRefused =
      4,      // the last one, by the process that accepted. Payload: why, in words; offset: kRefusalLimit ...
  kPath = 5,  // payload: padding; `region` says which step of the test of the path it is (path_test.h)
  kSecure = 6,  // `region` says which step of a protected connection's beginning it is (secure_start.h)
};

inline constexpr uint64_t kRefusalLimit = 0;   // offset: the accepting process is at a limit
inline constexpr uint64_t kRefusalConfig = 1;  // offset: the two are configured for different things

inline constexpr uint64_t kPathHere = 1;  // offset: why the packets of this connection are small
inline constexpr uint64_t kPathSize = 2;  // offset: the length of the packet that it makes
inline constexpr uint64_t kPathAll = 3;   // no larger one follows
inline constexpr uint64_t kPathSeen = 4;  // all of the other end's have come
inline constexpr uint32_t kMaxPathBytes = 32 << 10;

inline constexpr uint64_t kSecureOpening = 1;   // offset: the protection. Payload: the node's name
inline constexpr uint64_t kSecureExchange = 2;  // payload: bytes of the key exchange
inline constexpr uint32_t kMaxSecureBytes = 2 << 10;

struct FrameHeader {
  uint32_t magic = kFrameMagic;
  uint8_t version = kFrameVersion;
  FrameType type = FrameType::kMessage;
  uint16_t reserved = 0;
  uint32_t payload_bytes = 0;
  uint32_t reserved2 = 0;
  uint64_t region = 0;
  uint64_t offset = 0;
};
static_assert(sizeof(FrameHeader) == 32 && offsetof(FrameHeader, payload_bytes) == 8 &&
              offsetof(FrameHeader, region) == 16 && offsetof(FrameHeader, offset) == 24);
static_assert(std::endian::native == std::endian::little, "frames are copied as they lie in memory");
inline constexpr size_t kMaxRefusalBytes = 512;
static_assert(kMaxWriteBytes <= UINT32_MAX && kMaxMessageBytes <= UINT32_MAX);

// A header as it goes out; messages use only its first sizeof(FrameHeader) bytes.
struct WriteHead {
  FrameHeader header;
  Immediate immediate;
};
static_assert(sizeof(WriteHead) == sizeof(FrameHeader) + kImmediateBytes);

// Checks everything about a foreign header that can be known without the region table.
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

inline Status from_stranger(const std::string& what) {
  return {Code::kLink, what + " from a peer that has not shown who it is"};
}

// What a stranger may send (transport.h); `messages` counts them.
inline Status check_stranger(const FrameHeader& header, size_t& messages) {
  if (header.type == FrameType::kWrite) return from_stranger("a write");
  if (header.type != FrameType::kMessage) return Status::ok();
  if (header.payload_bytes > kMaxStrangerMessageBytes)
    return from_stranger("a message of " + std::to_string(header.payload_bytes) + " bytes");
  return ++messages > kMaxStrangerMessages ? from_stranger("too many messages") : Status::ok();
}

// A whole frame.
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

// Foreign bytes, for people to read.
inline std::string plain_words(const char* text, size_t bytes) {
  std::string words(text, bytes);
  std::replace_if(
      words.begin(), words.end(), [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
  return words;
}

// What the payload of a refusal says.
inline Status refused_by_peer(const FrameHeader& header, const char* text) {
  return {header.offset == kRefusalConfig ? Code::kConfig : Code::kSystem,
          "the peer refuses the connection: " + plain_words(text, header.payload_bytes)};
}

inline Status wrote_outside(const FrameHeader& header) {
  return {Code::kLink, "the peer wrote outside of registered memory (" +
                           std::to_string(header.payload_bytes) + " bytes at offset " +
                           std::to_string(header.offset) + ")"};
}

}  // namespace hdt::transport::tcp
