// wire.cc: encodes and decodes what wire.h declares. Put writes the fields of each message; get_message()
// reads the same fields in the same order and rejects values that no correct node sends. The number of a
// message on the wire is its index in the variant `EngineMessage`, so the cases of get_message() follow the
// order of that type.
//
// A decoder never fails half-way: Reader stays failed after the first read past the end, and
// decode_engine_message() looks once at the end whether all bytes were there and none is left over.
#include "daemon/protocol/wire.h"

#include <cstring>

#include "base/codec.h"
#include "ipc/partition.h"

namespace hdt::daemon {

namespace {

// The first byte of a frame.
constexpr uint8_t kChunk = 1, kCell = 2, kProbe = 3;
// A message must fit a control message of the link (kMaxLinkMessageBytes). Longer texts are cut when they
// are written; a longer text on the wire is malformed.
constexpr size_t kMaxText = 2048;
// One hour, in ms. A longer wait for a successor is malformed, so that a peer cannot make a group wait
// for ever.
constexpr int64_t kMaxRestartMs = 3'600'000;

// A frame as the header of a write. The rest of the header is zero; decode_frame() does not look at it.
transport::LinkHeader to_header(const Writer& writer) {
  transport::LinkHeader header{};
  static_assert(1 + 8 + 8 + 4 + 4 <= transport::kLinkHeaderBytes);
  std::memcpy(header.data(), writer.bytes().data(), writer.bytes().size());
  return header;
}

// Writes the fields of a message behind its kind. One overload per alternative of `EngineMessage`.
struct Put {
  Writer& w;
  void operator()(std::monostate) {}
  void operator()(const GroupHello& n) {
    w.put(n.group).put(n.from).put_bytes(n.region.bytes).put(n.restart_ms);
  }
  void operator()(const ChunkCredit& n) { w.put(n.group).put(n.from).put(n.chunks); }
  void operator()(const CellCredit& n) { w.put(n.group).put(n.source).put(n.destination).put(n.tail); }
  void operator()(const CallMessage& n) {
    w.put(n.group).put(n.from).put(n.sequence);
    put(n.call);
  }
  void operator()(const OutputMessage& n) {
    w.put(n.group).put(n.from).put(n.sequence);
    put(n.call);
    w.put(n.direct).put_bytes(n.region.bytes).put(n.offset);
  }
  // Only what defines the call. Addresses stay at home: they mean nothing on another node.
  void put(const ipc::Call& call) {
    w.put(call.count).put(call.root).put(call.what).put(call.type).put(call.op);
  }
  void operator()(const ProbeMessage& n) { w.put(n.group).put(n.kind).put_bytes(n.landing.bytes); }
  void operator()(const RatesMessage& n) {
    w.put(n.group).put(n.from);
    ipc::put(w, n.rates);
  }
  // Settings that would not fit were refused before (ClassChanges::answer_set()), so nothing is cut here
  // in a correct daemon.
  void operator()(const ClassPrepare& n) {
    w.put(n.group).put(n.change).put_string(n.settings.substr(0, kMaxText));
  }
  void operator()(const ClassEnds& n) {
    w.put(n.group).put(n.change);
    daemon::put(w, n.ends);
  }
  void operator()(const ClassReady& n) {
    w.put(n.group).put(n.change).put(n.code).put_string(n.text.substr(0, kMaxText));
  }
  void operator()(const ClassCommit& n) { w.put(n.group).put(n.change).put(n.commit); }
  void operator()(const LinkMoved& n) { w.put(n.group); }
  void operator()(const LinkUnused& n) { w.put(n.group); }
  void operator()(const ChunkState& n) {
    w.put(n.group).put(n.chunk).put(n.from).put(static_cast<uint32_t>(n.tags.size()));
    for (const uint32_t tag : n.tags) w.put(tag);
  }
  void operator()(const RingState& n) {
    w.put(n.group).put(n.source).put(n.destination).put(n.landed).put(n.tail);
  }
  void operator()(const Resume& n) {
    w.put(n.group).put(n.from).put(n.exchanged).put(n.credit).put(n.finished);
  }
  // `entered` tells which calls the rank has still made.
  void operator()(const RankLeft& n) { w.put(n.group).put(n.rank).put(n.entered); }
  void operator()(const GroupReady& n) { w.put(n.group).put(n.from); }
  void operator()(const GroupUnknown& n) { w.put(n.group); }
  void operator()(const NodeLeft& n) { w.put(n.group).put(n.from); }
  void operator()(const GroupSeated& n) { w.put(n.group).put(n.from); }
  void operator()(const GroupFailed& n) {
    w.put(n.group).put(n.code).put(n.rank).put_string(n.text.substr(0, kMaxText));
  }
};

// Every message begins with its group, so that group_of() and the receiver can find the group before anything
// else is looked at.
template <typename T>
T get_common(Reader& r) {
  T n{};
  n.group = r.get<uint64_t>();
  return n;
}

// A call as another node's ranks made it. Its enums and its root are checked for soundness in themselves.
ipc::Call get_call(Reader& r) {
  ipc::Call call;
  call.count = r.get<uint64_t>();
  call.root = r.get<int32_t>();
  call.what = r.get<collectives::Collective>();
  call.type = r.get<collectives::DataType>();
  call.op = r.get<collectives::ReduceOp>();
  // Whether it fits the ranks of a group is checked where the group is known.
  if (!ipc::is_sound(call)) r.fail();
  return call;
}

// The message of this kind; monostate for an unknown kind or a value that is out of range. The caller
// checks that all bytes were read.
EngineMessage get_message(size_t kind, Reader& r) {
  switch (kind) {
    case 1: {
      auto n = get_common<GroupHello>(r);
      n.from = r.get<uint32_t>();
      r.get_bytes(n.region.bytes);
      n.restart_ms = r.get<int64_t>();
      if (n.restart_ms < 0 || n.restart_ms > kMaxRestartMs) return {};
      return n;
    }
    case 2: {
      auto n = get_common<ChunkCredit>(r);
      n.from = r.get<uint32_t>();
      n.chunks = r.get<uint64_t>();
      return n;
    }
    case 3: {
      auto n = get_common<CellCredit>(r);
      n.source = r.get<uint32_t>();
      n.destination = r.get<uint32_t>();
      n.tail = r.get<uint64_t>();
      return n;
    }
    case 4: {
      auto n = get_common<CallMessage>(r);
      n.from = r.get<uint32_t>();
      n.sequence = r.get<uint64_t>();
      n.call = get_call(r);
      return n;
    }
    case 5: {
      auto n = get_common<RankLeft>(r);
      n.rank = r.get<uint32_t>();
      n.entered = r.get<uint64_t>();
      return n;
    }
    case 6: {
      auto n = get_common<NodeLeft>(r);
      n.from = r.get<uint32_t>();
      return n;
    }
    case 7: {
      auto n = get_common<GroupFailed>(r);
      n.code = r.get<Code>();
      n.rank = r.get<int32_t>();
      n.text = r.get_text(kMaxText);
      const int code = static_cast<int>(n.code);
      // A failure is neither kSuccess (0) nor kInProgress (1).
      if (code < 2 || code >= kCodeCount) return {};
      return n;
    }
    case 8: {
      auto n = get_common<OutputMessage>(r);
      n.from = r.get<uint32_t>();
      n.sequence = r.get<uint64_t>();
      n.call = get_call(r);
      n.direct = r.get<uint8_t>();
      r.get_bytes(n.region.bytes);
      n.offset = r.get<uint64_t>();
      return n;
    }
    case 9: {
      auto n = get_common<ProbeMessage>(r);
      n.kind = r.get<ProbeMessage::Kind>();
      r.get_bytes(n.landing.bytes);
      // A measurement belongs to a link: a group in it is malformed.
      if (n.group != 0 || n.kind < ProbeMessage::Kind::kHere || n.kind > ProbeMessage::Kind::kTurn) return {};
      return n;
    }
    case 10: {
      auto n = get_common<RatesMessage>(r);
      n.from = r.get<uint32_t>();
      n.rates = ipc::get_node_rates(r);
      return n;
    }
    case 11: {
      auto n = get_common<ClassPrepare>(r);
      n.change = r.get<uint64_t>();
      n.settings = r.get_string(kMaxText);
      return n;
    }
    case 12: {
      auto n = get_common<ClassEnds>(r);
      n.change = r.get<uint64_t>();
      n.ends = get_rail_ends(r);
      return n;
    }
    case 13: {
      auto n = get_common<ClassReady>(r);
      n.change = r.get<uint64_t>();
      n.code = r.get<Code>();
      n.text = r.get_text(kMaxText);
      const int code = static_cast<int>(n.code);
      // kSuccess is an answer as well.
      if (code < 0 || code >= kCodeCount) return {};
      return n;
    }
    case 14: {
      auto n = get_common<ClassCommit>(r);
      n.change = r.get<uint64_t>();
      n.commit = r.get<uint8_t>();
      return n;
    }
    case 15:
      return get_common<LinkMoved>(r);
    case 16: {
      auto n = get_common<LinkUnused>(r);
      // It concerns the link, so no group may be named.
      if (n.group != 0) return {};
      return n;
    }
    case 17: {
      auto n = get_common<ChunkState>(r);
      n.chunk = r.get<uint64_t>();
      n.from = r.get<uint32_t>();
      // The count is limited before memory is taken for it.
      const uint32_t count = r.get_count(kMaxTags);
      for (uint32_t i = 0; i < count && !r.failed(); ++i) n.tags.push_back(r.get<uint32_t>());
      return n;
    }
    case 18: {
      auto n = get_common<RingState>(r);
      n.source = r.get<uint32_t>();
      n.destination = r.get<uint32_t>();
      n.landed = r.get<uint64_t>();
      n.tail = r.get<uint64_t>();
      return n;
    }
    case 19: {
      auto n = get_common<Resume>(r);
      n.from = r.get<uint32_t>();
      n.exchanged = r.get<uint64_t>();
      n.credit = r.get<uint64_t>();
      n.finished = r.get<uint64_t>();
      return n;
    }
    case 20: {
      auto n = get_common<GroupSeated>(r);
      n.from = r.get<uint32_t>();
      return n;
    }
    case 21: {
      auto n = get_common<GroupReady>(r);
      n.from = r.get<uint32_t>();
      return n;
    }
    case 22:
      return get_common<GroupUnknown>(r);
    default:
      return {};
  }
}

}  // namespace

// The header travels with each write and is delivered when the payload is in its place.
transport::LinkHeader encode(const ChunkFrame& f) {
  Writer w;
  return to_header(w.put(kChunk).put(f.group).put(f.chunk).put(f.from).put(f.tag));
}

// The ranks are numbered within the group, so each end finds its own ring by them.
transport::LinkHeader encode(const CellFrame& f) {
  Writer w;
  return to_header(w.put(kCell).put(f.group).put(f.index).put(f.source).put(f.destination));
}

// Nothing but its kind: which burst it was does not matter.
transport::LinkHeader encode(const ProbeFrame& f) { return to_header(Writer().put(kProbe).put(f.group)); }

// All frames have the same fields, two numbers of 64 bits and two of 32, so one sequence of reads serves
// them all. A ProbeFrame is shorter, and the rest of its header is zero. A header is longer than the
// fields, so a read cannot fail.
Frame decode_frame(const transport::LinkHeader& header) {
  Reader r(header);
  const auto kind = r.get<uint8_t>();
  const auto group = r.get<uint64_t>();
  const auto number = r.get<uint64_t>();
  const auto first = r.get<uint32_t>();
  const auto second = r.get<uint32_t>();
  if (kind == kChunk) return ChunkFrame{group, number, first, second};
  if (kind == kCell) return CellFrame{group, number, first, second};
  if (kind == kProbe) return ProbeFrame{group};
  return {};
}

// As for control messages, the kind is the index in the variant.
std::vector<std::byte> encode(const EngineMessage& note) {
  Writer writer;
  writer.put(static_cast<uint8_t>(note.index()));
  std::visit(Put{writer}, note);
  return writer.take();
}

// std::monostate means that the peer does not speak this protocol; its link is closed for that.
EngineMessage decode_engine_message(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  const auto kind = reader.get<uint8_t>();
  EngineMessage note = get_message(kind, reader);
  if (!reader.complete()) return {};
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
