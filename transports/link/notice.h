// notice.h: what two links say to each other in messages of their rails: hello on a new rail, control
// messages of the layer above, which rail was lost and what had come on it, acknowledgements.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transports/link/delay_meter.h"
#include "transports/link/link.h"

namespace hdt::transport {

inline constexpr uint32_t kNoticeMagic = 0x344c4448;  // "HDL4": a new number for a new layout

enum class NoticeKind : uint8_t {
  kHello = 1,     // first on every rail
  kMessage = 2,   // of the layer above; numbered
  kRailLost = 3,  // numbered
  kAcknowledge = 4,
  kPing = 5,  // answered by kAcknowledge at once
};

// In front of every notice.
struct NoticeHead {
  uint32_t magic = kNoticeMagic;
  NoticeKind kind = NoticeKind::kAcknowledge;
  uint8_t zero[3] = {};
  uint64_t number = 0;    // of numbered notices: 1, 2, 3 ... per link and direction, whatever rail they take
  uint64_t notices = 0;   // numbered notices that have come the other way
  uint32_t received = 0;  // chunks that have come on this rail the other way, modulo 2^32
  Stamp received_at = 0;  // when the last of them came, by the clock of who sends this
  uint16_t reserved = 0;
};
static_assert(sizeof(NoticeHead) == 32);

struct HelloBody {
  uint64_t link = 0;       // random: tells a link from its successor
  uint64_t peer_link = 0;  // what the sender takes for the receiver's; 0: nothing yet
  uint32_t rail = 0;       // the sender's number of this rail
};

struct RailLostBody {
  uint32_t rail = 0;      // by the sender's number
  uint64_t received = 0;  // chunks that came on it, all told
};

static_assert(sizeof(NoticeHead) + kMaxLinkMessageBytes <= kMaxMessageBytes);

std::vector<std::byte> encode(const HelloBody& hello);
std::vector<std::byte> encode(const RailLostBody& lost);
std::optional<HelloBody> decode_hello(std::span<const std::byte> body);
std::optional<RailLostBody> decode_rail_lost(std::span<const std::byte> body);
// Nothing if it is not a notice of this layout.
std::optional<NoticeHead> decode_head(std::span<const std::byte> message);

}  // namespace hdt::transport
