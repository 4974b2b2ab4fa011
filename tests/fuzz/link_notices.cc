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

// The checksum of a fragment holds for its payload and its header, and for no other; what changes when the
// fragment is sent again is not in it.
void check_sum(const FragmentHeader& header, std::span<const std::byte> payload) {
  const uint32_t sum = checksum_of(header, payload);
  FragmentHeader again = header;
  again.checksum = sum;
  again.received += 1;
  again.received_at = header.received_at + 1;
  HDT_HOLDS(checksum_of(again, payload) == sum);
  again.message_id ^= 1;
  HDT_HOLDS(checksum_of(again, payload) != sum);  // a CRC sees every change of one bit
}

bool take_fragment(Choices input) {
  const auto placed = input.get<uint64_t>();
  const auto immediate = input.get<Immediate>();
  const auto fragment = to_fragment(immediate, placed);
  if (!fragment.is_ok()) {
    HDT_HOLDS(fragment.status().code() == Code::kLink && !fragment.status().message().empty());
    return false;
  }
  const FragmentHeader& header = fragment.value();
  HDT_HOLDS(to_immediate(header) == immediate);
  check_sum(header, input.rest());
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

Bytes fragment(const FragmentHeader& header, uint64_t placed) {
  Bytes all = fuzz::changed({std::byte{1}}, 1, placed);
  return fuzz::changed(all, all.size(), to_immediate(header));
}

FragmentHeader a_header() {
  FragmentHeader header;
  header.message_bytes = 100;
  header.pages = kMinFragmentBytes / kFragmentPage;
  return header;
}

// Steps of take_arrivals().
Bytes arrivals(std::initializer_list<int> bytes) {
  Bytes all = {std::byte{2}};
  for (const int byte : bytes) all.push_back(static_cast<std::byte>(byte));
  return all;
}

std::vector<Bytes> seeds() {
  HelloBody hello;
  hello.link = 5;
  std::vector<Bytes> all = {notice(NoticeKind::kHello, encode(hello)),
                            notice(NoticeKind::kRailLost, encode(RailLostBody{})),
                            notice(NoticeKind::kMessage, fuzz::to_bytes("note")),
                            notice(NoticeKind::kAcknowledge, {}), notice(NoticeKind::kPing, {})};
  all.push_back(fragment(a_header(), 100));
  // Three fragments of two messages.
  all.push_back(arrivals({0, 0, 1, 1, 0, 1, 0, 2, 1, 0, 1, 2}));
  // The same; then fragments of messages that are complete; one fragment twice; another header in it.
  all.push_back(arrivals({1, 0, 1, 1, 1, 2, 0, 0, 0, 1, 0, 2, 0, 0, 1, 1, 2, 0, 2, 0, 0x82, 1}));
  // A message of one fragment, number 1 before number 0; and one that is far ahead.
  all.push_back(arrivals({0x21, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0x20, 1, 0, 0, 0, 0, 0, 0, 0,    0,
                          0x22, 1, 0, 0, 0, 0, 0, 0, 0, 0, 7,    0, 0, 0, 0, 0, 0, 0, 0x7f, 0}));
  return all;
}

std::vector<Bytes> spoilt() {
  const auto with = [](auto change, uint64_t placed = 100) {
    FragmentHeader header = a_header();
    change(header);
    return fragment(header, placed);
  };
  const Bytes hello = notice(NoticeKind::kHello, encode(HelloBody{}));
  return {with([](FragmentHeader& h) { h.magic += 2; }),
          with([](FragmentHeader& h) { h.pages = 0; }),
          with([](FragmentHeader& h) { h.pages = UINT16_MAX; }),
          with([](FragmentHeader& h) { h.message_bytes = kMaxLinkWriteBytes + 1; }),
          with([](FragmentHeader& h) { h.index = 1; }),
          with([](FragmentHeader&) {}, 99),
          {std::byte{0}},
          hello,  // of link 0
          fuzz::changed(hello, 1, uint32_t{0}),
          notice(NoticeKind::kRailLost, {})};
}

HDT_FUZZ_TARGET(link_notices, take, seeds, spoilt)

}  // namespace hdt::transport::fuzz_link_notices
