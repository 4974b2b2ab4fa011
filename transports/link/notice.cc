// notice.cc: encodes and decodes notices (see notice.h). The bytes that a decoder gets are foreign, so each
// field is read from a copy and its length is checked. Writer and reader follow one description of a body,
// fields(); the head is copied as it lies in memory.
#include "transports/link/notice.h"

#include <cstring>

#include "base/codec.h"

namespace hdt::transport {

void fields(auto& c, Is<HelloBody> auto& m) { c.number(m.link, m.peer_link, m.rail); }
void fields(auto& c, Is<RailLostBody> auto& m) { c.number(m.rail, m.received); }

namespace {

std::vector<std::byte> bytes_of(const auto& body) {
  Writer writer;
  fields(writer, body);
  return writer.take();
}

template <typename Body>
std::optional<Body> body_in(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Body body;
  fields(reader, body);
  return reader.complete() ? std::optional(body) : std::nullopt;
}

}  // namespace

std::vector<std::byte> encode(const HelloBody& hello) { return bytes_of(hello); }
std::vector<std::byte> encode(const RailLostBody& lost) { return bytes_of(lost); }

std::optional<HelloBody> decode_hello(std::span<const std::byte> body) {
  const auto hello = body_in<HelloBody>(body);
  return hello && hello->link != 0 ? hello : std::nullopt;
}

std::optional<RailLostBody> decode_rail_lost(std::span<const std::byte> body) {
  return body_in<RailLostBody>(body);
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
