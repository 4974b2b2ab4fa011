// notice.h: notices, the messages that two links exchange with Connection::send() on their rails: the hello
// on a new rail, control messages of the layer above, the loss of a rail, acknowledgements and pings.
//
// Layout: NoticeHead, then the body. The bodies of kHello and kRailLost are encoded by base/codec.h, the body
// of kMessage belongs to the layer above, and the other kinds have none. The decode functions check foreign
// bytes; a peer that sends something else ends its link.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transports/link/delay_meter.h"
#include "transports/link/link.h"

namespace hdt::transport {

inline constexpr uint32_t kNoticeMagic = 0x344c4448;  // "HDL4": a new number for a new layout

// The numbers are on the wire. Numbered notices are kept until acknowledged and sent again when their rail is
// lost; the receiver takes each of them once, in order. The others belong to their rail and may be lost with
// it.
enum class NoticeKind : uint8_t {
  kHello = 1,        // the first notice in each direction of a rail
  kMessage = 2,      // a control message of the layer above; numbered
  kRailLost = 3,     // the sender has closed its end of a rail; numbered
  kAcknowledge = 4,  // carries the head's counts only
  kPing = 5,         // answered at once by kAcknowledge
};

// In front of every notice. Every head acknowledges: numbered notices of the link, and the fragments that
// came on the rail it travels on.
struct NoticeHead {
  uint32_t magic = kNoticeMagic;
  NoticeKind kind = NoticeKind::kAcknowledge;
  uint8_t zero[3] = {};
  // In a numbered notice: 1, 2, 3 ... per link and direction, on whatever rail it travels. 0: not numbered.
  uint64_t number = 0;
  uint64_t notices = 0;   // the numbered notices 1 to this one have come in the other direction
  uint32_t received = 0;  // fragments that came on this rail in the other direction, modulo 2^32
  Stamp received_at = 0;  // when the last of them came, by the sender's clock (delay_meter.h)
  uint16_t reserved = 0;
};
static_assert(sizeof(NoticeHead) == 32);

// The hello decides whether the two ends mean the same pair of links. Link::State::on_hello() has the cases.
struct HelloBody {
  uint64_t link = 0;       // the number of the sender's link: random, not 0, different for its successor
  uint64_t peer_link = 0;  // the number that the sender knows of the receiver's link; 0: none yet
  uint32_t rail = 0;       // the sender's number of this rail; RailLostBody refers to it
};

// Sent over another rail. It is final: nothing counts any more of what arrives on the lost rail afterwards.
struct RailLostBody {
  uint32_t rail = 0;      // the number that the sender's hello gave the rail
  uint64_t received = 0;  // all fragments that came on it at the sender
};

static_assert(sizeof(NoticeHead) + kMaxLinkMessageBytes <= kMaxMessageBytes);

// Bodies to bytes and back. The decode functions return nothing for a body of another length; a hello whose
// link number is 0 is malformed as well.
std::vector<std::byte> encode(const HelloBody& hello);
std::vector<std::byte> encode(const RailLostBody& lost);
std::optional<HelloBody> decode_hello(std::span<const std::byte> body);
std::optional<RailLostBody> decode_rail_lost(std::span<const std::byte> body);
// The head of a received message. Nothing if the message is too short, has another magic or an unknown kind,
// or if it has a number and its kind has none, or the other way round.
std::optional<NoticeHead> decode_head(std::span<const std::byte> message);

}  // namespace hdt::transport
