// frame.h: what two ends send each other: a Hello in the private data of rdma_cm's request and reply, and
// then SENDs that begin with a FrameHeader. Payload of writes is in no frame: RDMA WRITEs place it. Little
// endian. Both structures are foreign until they have been checked field by field.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "base/status.h"
#include "transports/rdma/region_key.h"
#include "transports/transport.h"

namespace hdt::transport::rdma {

static_assert(std::endian::native == std::endian::little, "frames are copied as they are");

// Ends with different versions refuse each other at the handshake.
inline constexpr uint32_t kHelloMagic = 0x52544448;  // "HDTR"
inline constexpr uint16_t kProtocolVersion = 1;

// A receive takes one frame, of at most kSlotBytes. A slot is small, as each connection has kReceiveSlots
// of them; long messages are cut.
inline constexpr uint32_t kSlotBytes = 1024;
inline constexpr uint16_t kReceiveSlots = 64;

// The facts that an end must know of the other before the first request.
struct Hello {
  uint32_t magic = kHelloMagic;
  uint16_t version = kProtocolVersion;
  uint16_t nic_slot = 0;                   // which key of a RegionKey is that of this NIC: below kMaxNics
  uint16_t receive_slots = kReceiveSlots;  // receives posted by this end: the first credits of the other
  uint16_t reserved = 0;
  uint32_t slot_bytes = kSlotBytes;  // must be equal at both ends
};
static_assert(sizeof(Hello) == 16 && std::is_trivially_copyable_v<Hello>);

enum class FrameType : uint8_t {
  kMessage = 1,  // a piece of a message follows
  kWritten = 2,  // the payload of a write is in its place; the immediate follows
  kCredits = 3,  // nothing follows: returns credits
  kGoodbye = 4,  // nothing follows: the sender closes in order
};

// The head of every SEND. A SEND arrives after the RDMA WRITEs that were posted before it on the same
// queue pair, so kWritten may rely on its payload being there.
struct FrameHeader {
  FrameType type = FrameType::kMessage;
  uint8_t more = 0;      // kMessage: 1 if another piece of the message follows, otherwise 0
  uint16_t credits = 0;  // receives that the sender has posted anew since its last frame
  uint32_t bytes = 0;    // kMessage: of this piece; kWritten: of the payload
  uint32_t region = 0;   // kWritten: the receiver's own remote key of the memory
  uint32_t reserved = 0;
  uint64_t address = 0;  // kWritten: where the payload begins, as the adapter counts (region_key.h)
};
static_assert(sizeof(FrameHeader) == 24 && std::is_trivially_copyable_v<FrameHeader>);

// The limit of a piece of a message, in bytes.
inline constexpr size_t kPieceBytes = kSlotBytes - sizeof(FrameHeader);
// The minimum that a Hello may offer. Data needs more credits than SendQueue::kReservedCredits.
inline constexpr uint16_t kLeastReceiveSlots = 4;

// Checks a foreign hello, behind which rdma_cm pads with zeroes. kVersion for another version of the
// protocol, kLink for everything else.
inline Result<Hello> to_hello(std::span<const std::byte> bytes) {
  Hello hello;
  if (bytes.size() < sizeof hello) return Status(Code::kLink, "the peer does not speak this protocol");
  std::memcpy(&hello, bytes.data(), sizeof hello);
  if (hello.magic != kHelloMagic) return Status(Code::kLink, "the peer does not speak this protocol");
  if (hello.version != kProtocolVersion) {
    return Status(Code::kVersion, "the peer speaks version " + std::to_string(hello.version) +
                                      " of the rdma protocol, this is " + std::to_string(kProtocolVersion));
  }
  if (hello.nic_slot >= kMaxNics || hello.receive_slots < kLeastReceiveSlots ||
      hello.slot_bytes != kSlotBytes || hello.reserved != 0) {
    return Status(Code::kLink, "malformed hello");
  }
  return hello;
}

// Checks everything about a foreign frame that can be known without the memory that it names.
// `receive_slots`: as in the peer's Hello; a frame cannot return more credits than that. `partial`: bytes
// of the message under way that have arrived before. kLink if the frame is malformed.
inline Result<FrameHeader> to_frame(std::span<const std::byte> frame, uint16_t receive_slots,
                                    size_t partial) {
  const auto bad = [](const char* what) {
    return Status(Code::kLink, std::string("malformed frame") + what);
  };
  FrameHeader header;
  if (frame.size() < sizeof header) return bad(": too short");
  std::memcpy(&header, frame.data(), sizeof header);
  const size_t body = frame.size() - sizeof header;
  if (header.reserved != 0 || header.credits > receive_slots) return bad(" header");
  switch (header.type) {
    case FrameType::kMessage:
      if (body == 0 || body != header.bytes || header.more > 1 || partial + body > kMaxMessageBytes) {
        return bad(": the length of a message");
      }
      return header;
    case FrameType::kWritten:
      if (body != kImmediateBytes || header.bytes > kMaxWriteBytes || partial != 0) return bad(": a write");
      return header;
    case FrameType::kCredits:
      if (body != 0) return bad(": credits with a body");
      return header;
    case FrameType::kGoodbye:
      if (body != 0) return bad(": a goodbye with a body");
      return header;
  }
  return bad(": unknown type");
}

}  // namespace hdt::transport::rdma
