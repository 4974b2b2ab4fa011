// notice.cc: encodes and decodes notices (see notice.h). Integers are little endian. The bytes that a decoder
// gets are foreign, so each field is read from a copy and its length is checked.
#include "transports/link/notice.h"

#include <cstring>

#include "base/codec.h"

namespace hdt::transport {

std::vector<std::byte> encode(const HelloBody& hello) {
  return Writer().put(hello.link).put(hello.peer_link).put(hello.rail).take();
}

std::vector<std::byte> encode(const RailLostBody& lost) {
  return Writer().put(lost.rail).put(lost.received).take();
}

std::optional<HelloBody> decode_hello(std::span<const std::byte> body) {
  Reader reader(body);
  HelloBody hello;
  hello.link = reader.get<uint64_t>();
  hello.peer_link = reader.get<uint64_t>();
  hello.rail = reader.get<uint32_t>();
  if (!reader.complete() || hello.link == 0) return std::nullopt;
  return hello;
}

std::optional<RailLostBody> decode_rail_lost(std::span<const std::byte> body) {
  Reader reader(body);
  RailLostBody lost;
  lost.rail = reader.get<uint32_t>();
  lost.received = reader.get<uint64_t>();
  if (!reader.complete()) return std::nullopt;
  return lost;
}

std::optional<NoticeHead> decode_head(std::span<const std::byte> message) {
  NoticeHead head;
  if (message.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, message.data(), sizeof head);
  // Any byte may be there: the range is checked before the value is used as a NoticeKind.
  const bool known = head.kind >= NoticeKind::kHello && head.kind <= NoticeKind::kPing;
  const bool numbered = head.kind == NoticeKind::kMessage || head.kind == NoticeKind::kRailLost;
  if (head.magic != kNoticeMagic || !known || (head.number != 0) != numbered) return std::nullopt;
  return head;
}

}  // namespace hdt::transport
