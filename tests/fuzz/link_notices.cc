// link_notices.cc: what two links say to each other (transports/link): notices, fragment headers, and the
// book of what has arrived.
#include <algorithm>
#include <bit>

#include "tests/fuzz/target.h"
#include "transports/link/arrivals.h"
#include "transports/link/notice.h"

namespace hdt::transport::fuzz_link_notices {

using fuzz::Bytes;
using fuzz::Choices;

enum class What : uint8_t { kNotice, kFragment, kArrivals, kCount };

bool take_notice(std::span<const std::byte> message) {
  const auto head = decode_head(message);
  if (!head) return false;
  HDT_HOLDS(head->magic == kNoticeMagic);
  const std::span<const std::byte> body = message.subspan(sizeof *head);
  if (head->kind == NoticeKind::kHello) {
    const auto hello = decode_hello(body);
    if (!hello) return false;
    HDT_HOLDS(hello->link != 0 && std::ranges::equal(encode(*hello), body));
  }
  if (head->kind == NoticeKind::kRailLost) {
    const auto lost = decode_rail_lost(body);
    if (!lost) return false;
    HDT_HOLDS(head->number != 0 && std::ranges::equal(encode(*lost), body));
  }
  return true;
}

bool take_fragment(Choices input) {
  const auto placed = input.get<uint64_t>();
  const auto fragment = to_fragment(input.get<Immediate>(), placed);
  if (!fragment.is_ok()) return false;
  const FragmentHeader& header = fragment.value();
  HDT_HOLDS(header.index < header.count() && header.message_bytes <= kMaxLinkWriteBytes);
  HDT_HOLDS(header.offset() <= header.message_bytes && header.bytes() == placed);
  HDT_HOLDS(placed <= kMaxFragmentBytes && header.offset() + placed <= header.message_bytes);
  return true;
}

// A row of fragment headers, all of which to_fragment() has taken: no fragment counts twice, no message is
// complete before all its fragments have come.
bool take_arrivals(Choices input) {
  Arrivals arrivals;
  std::map<uint64_t, std::map<uint32_t, bool>> landed;
  std::map<uint64_t, bool> complete;
  bool any = false;
  for (int i = 0; i < 256 && !input.empty(); ++i) {
    FragmentHeader fragment;
    const auto step = input.get<uint8_t>();
    fragment.message_id = step % 8 == 7 ? input.get<uint64_t>() : step % 8;
    fragment.pages = static_cast<uint16_t>((step >> 3) % 4 == 3 ? input.get<uint16_t>()
                                                                : kMinFragmentBytes / kFragmentPage);
    fragment.message_bytes = (step >> 5) % 2 == 1 ? input.get<uint64_t>() : 3 * fragment.fragment_bytes();
    fragment.index = (step >> 6) % 2 == 1 ? input.get<uint32_t>() : input.get<uint8_t>() % 3;
    fragment.header[0] = std::byte(step >> 7);
    const uint64_t placed =
        fragment.fragment_bytes() != 0 && fragment.index < fragment.count() ? fragment.bytes() : 0;
    const auto checked = to_fragment(to_immediate(fragment), placed);
    if (!checked.is_ok()) continue;
    const auto added = arrivals.add(checked.value());
    HDT_HOLDS(arrivals.open_messages() <= Arrivals::kMaxOpenMessages);
    if (!added.is_ok()) continue;
    any = true;
    HDT_HOLDS(!complete[fragment.message_id] && !landed[fragment.message_id][fragment.index]);
    landed[fragment.message_id][fragment.index] = true;
    HDT_HOLDS(added.value() == (landed[fragment.message_id].size() == fragment.count()));
    complete[fragment.message_id] = added.value();
  }
  return any;
}

bool take(std::span<const std::byte> input) {
  Choices choices(input);
  switch (static_cast<What>(choices.get<uint8_t>() % static_cast<uint8_t>(What::kCount))) {
    case What::kNotice:
      return take_notice(choices.rest());
    case What::kFragment:
      return take_fragment(choices);
    default:
      return take_arrivals(choices);
  }
}

Bytes notice(NoticeKind kind, const Bytes& body) {
  NoticeHead head;
  head.kind = kind;
  head.number = kind == NoticeKind::kMessage || kind == NoticeKind::kRailLost ? 1 : 0;
  Bytes all(1 + sizeof head);
  std::memcpy(all.data() + 1, &head, sizeof head);
  all.insert(all.end(), body.begin(), body.end());
  return all;
}

std::vector<Bytes> seeds() {
  HelloBody hello;
  hello.link = 5;
  std::vector<Bytes> all = {notice(NoticeKind::kHello, encode(hello)),
                            notice(NoticeKind::kRailLost, encode(RailLostBody{})),
                            notice(NoticeKind::kMessage, fuzz::to_bytes("note")),
                            notice(NoticeKind::kAcknowledge, {}), notice(NoticeKind::kPing, {})};
  FragmentHeader fragment;
  fragment.message_bytes = 100;
  fragment.pages = kMinFragmentBytes / kFragmentPage;
  const uint64_t placed = 100;
  const Immediate immediate = to_immediate(fragment);
  Bytes of_fragment(1 + sizeof placed + sizeof immediate, std::byte{1});
  std::memcpy(of_fragment.data() + 1, &placed, sizeof placed);
  std::memcpy(of_fragment.data() + 1 + sizeof placed, immediate.data(), immediate.size());
  all.push_back(of_fragment);
  // Three fragments of two messages.
  all.push_back({std::byte{2}, std::byte{0}, std::byte{0}, std::byte{1}, std::byte{1}, std::byte{0},
                 std::byte{1}, std::byte{0}, std::byte{2}, std::byte{1}, std::byte{0}, std::byte{1},
                 std::byte{2}});
  return all;
}

HDT_FUZZ_TARGET(link_notices, take, seeds)

}  // namespace hdt::transport::fuzz_link_notices
