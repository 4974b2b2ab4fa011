// wire.cc: encodes and decodes what wire.h declares. The functions fields() name what each frame and message
// consists of; writer and reader both follow them (base/codec.h). The number of a kind on the wire is its
// index in the variant `Frame` or `EngineMessage`. A message is accepted only if all its bytes were read
// and its values are such as a correct node sends (is_valid()).
#include "daemon/protocol/wire.h"

#include <algorithm>
#include <cstring>

#include "base/codec.h"
#include "ipc/partition.h"

namespace hdt::daemon {

namespace {

// A message must fit a control message of the link (kMaxLinkMessageBytes). Longer texts are cut when they
// are written; a longer text on the wire is malformed.
constexpr size_t kMaxEngineText = 2048;
// One hour, in ms. A longer wait for a successor is malformed, so that a peer cannot make a group wait
// for ever.
constexpr int64_t kMaxRestartMs = 3'600'000;

}  // namespace

void fields(auto& c, Is<ChunkFrame> auto& f) { c.number(f.group, f.chunk, f.from, f.tag); }
// The ranks are numbered within the group, so each end finds its own ring by them.
void fields(auto& c, Is<CellFrame> auto& f) { c.number(f.group, f.index, f.source, f.destination); }
// Nothing but its kind: which burst it was does not matter.
void fields(auto& c, Is<ProbeFrame> auto& f) { c.number(f.group); }

// Only what defines the call. Addresses stay at home: they mean nothing on another node.
void fields(auto& c, Is<ipc::Call> auto& call) {
  c.number(call.count, call.root, call.what, call.type, call.op, call.part);
}

// Every message begins with its group, so that the receiver can find the group before anything else is
// looked at.
void fields(auto& c, Is<GroupHello> auto& m) {
  c.number(m.group, m.from);
  c.bytes(m.region.bytes);
  c.number(m.restart_ms);
}
void fields(auto& c, Is<GroupReady> auto& m) { c.number(m.group, m.from); }
void fields(auto& c, Is<ChunkState> auto& m) {
  c.number(m.group, m.chunk, m.from);
  c.list(m.tags, kMaxTags, [&](auto& tag) { c.number(tag); });
}
void fields(auto& c, Is<RingState> auto& m) { c.number(m.group, m.source, m.destination, m.landed, m.tail); }
void fields(auto& c, Is<Resume> auto& m) { c.number(m.group, m.from, m.exchanged, m.credit, m.finished); }
void fields(auto& c, Is<ChunkCredit> auto& m) { c.number(m.group, m.from, m.chunks); }
void fields(auto& c, Is<CellCredit> auto& m) { c.number(m.group, m.source, m.destination, m.tail); }
void fields(auto& c, Is<CallMessage> auto& m) {
  c.number(m.group, m.from, m.sequence);
  fields(c, m.call);
}
void fields(auto& c, Is<OutputMessage> auto& m) {
  c.number(m.group, m.from, m.sequence);
  fields(c, m.call);
  c.number(m.direct);
  c.bytes(m.region.bytes);
  c.number(m.offset);
}
void fields(auto& c, Is<RingEnded> auto& m) { c.number(m.group, m.source, m.destination, m.cells); }
void fields(auto& c, Is<RankDeparted> auto& m) { c.number(m.group, m.rank, m.entered); }
void fields(auto& c, Is<NodeDeparted> auto& m) { c.number(m.group, m.from); }
void fields(auto& c, Is<GroupSeated> auto& m) { c.number(m.group, m.from); }
void fields(auto& c, Is<GroupFailed> auto& m) {
  c.number(m.group, m.code, m.rank);
  c.text(m.text, kMaxEngineText);
}
void fields(auto& c, Is<GroupUnknown> auto& m) { c.number(m.group); }
void fields(auto& c, Is<ProbeMessage> auto& m) {
  c.number(m.group, m.kind);
  c.bytes(m.landing.bytes);
}
void fields(auto& c, Is<RatesMessage> auto& m) {
  c.number(m.group, m.from);
  fields(c, m.rates);
}
void fields(auto& c, Is<RateChangeMessage> auto& m) {
  c.number(m.group, m.from, m.kind, m.number, m.call);
  c.list(m.parts, ipc::kMostMeasuredNodes * ipc::kMostMeasuredNodes, [&](auto& part) { c.number(part); });
}
// Settings that would not fit were refused before (ClassChanges::answer_set()), so nothing is cut here in a
// correct daemon.
void fields(auto& c, Is<ClassPrepare> auto& m) {
  c.number(m.group, m.change);
  c.cut_string(m.settings, kMaxEngineText);
}
void fields(auto& c, Is<ClassEnds> auto& m) {
  c.number(m.group, m.change);
  c.list(m.ends, kMaxRails);
}
void fields(auto& c, Is<ClassReady> auto& m) {
  c.number(m.group, m.change, m.code);
  c.text(m.text, kMaxEngineText);
}
void fields(auto& c, Is<ClassCommit> auto& m) { c.number(m.group, m.change, m.commit); }
void fields(auto& c, Is<LinkMoved> auto& m) { c.number(m.group); }
void fields(auto& c, Is<LinkDrained> auto& m) { c.number(m.group); }

namespace {

// Whether the values are such as a correct node sends. Most messages have none to check here: that a rank or
// a node exists, and that a call fits its ranks, is checked where the group is known.
bool is_valid(const auto&) { return true; }
bool is_valid(const GroupHello& m) { return m.restart_ms >= 0 && m.restart_ms <= kMaxRestartMs; }
bool is_valid(const CallMessage& m) { return ipc::is_sound(m.call); }
bool is_valid(const OutputMessage& m) { return ipc::is_sound(m.call); }
// A failure is neither kSuccess nor kInProgress.
bool is_valid(const GroupFailed& m) {
  return is_code(m.code) && m.code != Code::kSuccess && m.code != Code::kInProgress;
}
// A measurement belongs to a link: a group in it is malformed.
bool is_valid(const ProbeMessage& m) {
  return m.group == 0 && m.kind >= ProbeMessage::Kind::kHere && m.kind <= ProbeMessage::Kind::kTurn;
}
// A link without any rail would be no link, and none carries more than was measured.
bool is_valid(const RateChangeMessage& m) {
  using Kind = RateChangeMessage::Kind;
  return m.kind >= Kind::kNow && m.kind <= Kind::kPassed &&
         (m.kind == Kind::kNow || m.kind == Kind::kCommit) != m.parts.empty() &&
         std::ranges::none_of(m.parts, [](ipc::LinkPart part) { return part == 0; });
}
// kSuccess is an answer as well.
bool is_valid(const ClassReady& m) { return is_code(m.code); }
// It concerns the link, so no group may be named.
bool is_valid(const LinkDrained& m) { return m.group == 0; }

}  // namespace

// The header travels with each write and is delivered when the payload is in its place. The part of it that a
// frame does not use is zero.
transport::LinkHeader encode(const Frame& frame) {
  Writer writer;
  writer.one_of(frame);
  transport::LinkHeader header{};
  static_assert(1 + 8 + 8 + 4 + 4 <= transport::kLinkHeaderBytes);
  std::memcpy(header.data(), writer.written().data(), writer.written().size());
  return header;
}

// A header is longer than any frame, so reading the fields cannot fail. The rest is not looked at.
Frame decode_frame(const transport::LinkHeader& header) {
  Frame frame;
  Reader(header).one_of(frame);
  return frame;
}

std::vector<std::byte> encode(const EngineMessage& note) { return Writer().one_of(note).take(); }

// std::monostate means that the peer does not speak this protocol; its link is closed for that.
EngineMessage decode_engine_message(std::span<const std::byte> bytes) {
  EngineMessage note;
  if (!Reader(bytes).one_of(note).complete()) return {};
  if (!std::visit([](const auto& n) { return is_valid(n); }, note)) return {};
  return note;
}

// 0 for messages of the link itself, which belong to no group.
uint64_t group_of(const EngineMessage& note) {
  return std::visit(
      [](const auto& n) -> uint64_t {
        if constexpr (std::is_same_v<std::decay_t<decltype(n)>, std::monostate>) {
          return 0;
        } else {
          return n.group;
        }
      },
      note);
}

}  // namespace hdt::daemon
