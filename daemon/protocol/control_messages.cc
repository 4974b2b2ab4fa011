// control_messages.cc: encodes and decodes what control_messages.h declares. Put writes the fields of
// each message; decode_control() reads the same fields in the same order. A message is accepted only if
// all its bytes were read and its values are possible (valid()): what is computed from a Membership later
// relies on that.
#include "daemon/protocol/control_messages.h"

#include <set>

#include "base/codec.h"
#include "ipc/segment.h"

namespace hdt::daemon {

namespace {

// Limits in bytes. A reply may be as long as a message, minus its other fields.
constexpr size_t kMaxText = 4096;
constexpr size_t kMaxReply = kMaxControlBytes - kMaxText;
// in the place of an algorithm: the configuration has "auto"
constexpr uint8_t kAuto = 0xff;

// Not in live_classes.h, as only these messages carry one.
void put(Writer& w, const LiveClass& live) { w.put(live.version).put_string(live.settings); }

// Writes the fields of a message behind its kind. One overload per alternative of ControlMessage.
struct Put {
  Writer& w;
  void operator()(std::monostate) {}
  // All that the coordinator needs to compare ranks and to name them in an error: pid and user are what
  // the rank's own daemon has read from its socket, and not what the process claims.
  void operator()(const Join& m) {
    w.put_bytes(m.key).put(m.ranks).put(m.rank).put_string(m.group_class);
    w.put(m.algorithm ? static_cast<uint8_t>(*m.algorithm) : kAuto).put(m.timeout_ms);
    put(w, m.node);
    w.put(m.meeting).put(m.pid).put(m.uid).put(m.process_age_ms);
  }
  // Texts are cut to their limit here and refused beyond it by the decoder, so that a long error of ours
  // never becomes a malformed message.
  void operator()(const Cancel& m) {
    w.put_bytes(m.key).put(m.code).put(m.rank).put_string(m.text.substr(0, kMaxText));
  }
  // The nodes once, and for each rank the index of its node: the ends of a node are long, and a node has
  // many ranks.
  void operator()(const Membership& m) {
    w.put_bytes(m.key).put_bytes(m.secret).put_string(m.group_class);
    w.put(static_cast<uint32_t>(m.nodes.size()));
    for (const auto& node : m.nodes) put(w, node);
    w.put(static_cast<uint32_t>(m.node_of_rank.size()));
    for (uint32_t node : m.node_of_rank) w.put(node);
  }
  // The viewer travels with the question, because the node that answers decides what the asker may see.
  void operator()(const Inquiry& m) {
    w.put(m.number).put_string(m.what.substr(0, kMaxText));
    put(w, m.viewer);
  }
  // The sender's clock goes along, so that the asker can translate the times in the text.
  void operator()(const Reply& m) {
    w.put(m.number).put(m.code).put(m.now_ns).put_string(m.text.substr(0, kMaxReply));
  }
  // The live settings of the class go first in both directions: nodes with different ones must agree on
  // them before they connect.
  void operator()(const Successor& m) {
    w.put(m.group).put(m.from).put(m.to).put_string(m.group_class);
    put(w, m.live);
    put(w, m.node);
  }
  // The same place of the group as in the question, so that the asker finds what it asked for without
  // keeping a number.
  void operator()(const SuccessorReply& m) {
    w.put(m.group).put(m.from).put(m.to).put(m.code).put(m.rank).put_string(m.text.substr(0, kMaxText));
    put(w, m.live);
    put(w, m.node);
  }
  // kSuccess is an outcome as well: the node has made its part.
  void operator()(const Outcome& m) {
    w.put_bytes(m.key).put(m.code).put(m.rank).put_string(m.text.substr(0, kMaxText));
  }
};

// The settings are only a text here; they are parsed and checked where they are taken over
// (with_live_class()).
LiveClass get_live_class(Reader& r) {
  LiveClass live;
  live.version = r.get<uint64_t>();
  live.settings = r.get_string(kMaxSettings);
  // A version grows by one with each change, so a huge one was not counted.
  if (live.version > kMaxClassVersion) r.fail();
  return live;
}

// The fields only. Whether they are possible is checked by valid().
Join get_join(Reader& r) {
  Join m;
  r.get_bytes(m.key);
  m.ranks = r.get<uint32_t>();
  m.rank = r.get<uint32_t>();
  m.group_class = r.get_name(ipc::kMaxClassBytes);
  if (const auto algorithm = r.get<uint8_t>(); algorithm != kAuto) {
    m.algorithm = static_cast<collectives::Algorithm>(algorithm);
  }
  m.timeout_ms = r.get<int64_t>();
  m.node = get_node(r);
  m.meeting = r.get<ipc::Meeting>();
  m.pid = r.get<uint32_t>();
  m.uid = r.get<uint32_t>();
  m.process_age_ms = r.get<int64_t>();
  return m;
}

// The rank is one of the group's, someone waits for the group, the enums are known, and the node has at
// least one engine.
bool valid(const Join& m) {
  return m.meeting <= ipc::Meeting::kAgain && m.process_age_ms >= 0 && m.ranks > 0 &&
         m.ranks <= ipc::kMaxRanks && m.rank < m.ranks && m.timeout_ms > 0 && !m.node.rails.empty() &&
         (!m.algorithm || static_cast<int>(*m.algorithm) < collectives::kAlgorithmCount);
}

// The counts are limited before anything is allocated for them, so a short message cannot take much
// memory.
Membership get_membership(Reader& r) {
  Membership m;
  r.get_bytes(m.key);
  r.get_bytes(m.secret);
  m.group_class = r.get_name(ipc::kMaxClassBytes);
  const uint32_t nodes = r.get_count(ipc::kMaxRanks);
  for (uint32_t i = 0; i < nodes && !r.failed(); ++i) m.nodes.push_back(get_node(r));
  const uint32_t ranks = r.get_count(ipc::kMaxRanks);
  for (uint32_t i = 0; i < ranks && !r.failed(); ++i) m.node_of_rank.push_back(r.get<uint32_t>());
  return m;
}

// Every node appears once, has a rank and at least one engine, and has no more ranks than fit on a node.
// Everything that is computed from a membership relies on this.
bool valid(const Membership& m) {
  if (m.nodes.empty() || m.node_of_rank.size() < m.nodes.size()) return false;
  std::vector<uint32_t> ranks_of(m.nodes.size(), 0);
  for (uint32_t node : m.node_of_rank) {
    if (node >= m.nodes.size() || ++ranks_of[node] > ipc::kMaxLocalRanks) return false;
  }
  std::set<NodeId> ids;
  for (size_t node = 0; node < m.nodes.size(); ++node) {
    if (ranks_of[node] == 0 || m.nodes[node].rails.empty() || !ids.insert(m.nodes[node].id).second)
      return false;
  }
  return true;
}

}  // namespace

// The kind on the wire is the index in the variant. A new message is therefore added at its end, and the
// peer protocol's version grows (handshake.h).
std::vector<std::byte> encode(const ControlMessage& message) {
  Writer writer;
  writer.put(static_cast<uint8_t>(message.index()));
  std::visit(Put{writer}, message);
  return writer.take();
}

// std::monostate for anything that no correct daemon sends, which the caller ignores. The two steps are the
// same for each kind: read all fields, and look once whether all were there and none is left over.
ControlMessage decode_control(std::span<const std::byte> bytes) {
  Reader r(bytes);
  switch (r.get<uint8_t>()) {
    case 1: {
      Join m = get_join(r);
      if (r.complete() && valid(m)) return m;
      return {};
    }
    case 2: {
      Cancel m;
      r.get_bytes(m.key);
      m.code = r.get<Code>();
      m.rank = r.get<uint32_t>();
      m.text = r.get_text(kMaxText);
      const int code = static_cast<int>(m.code);
      // A Cancel has a reason, so its code is never kSuccess.
      if (r.complete() && code > 0 && code < kCodeCount && m.rank < ipc::kMaxRanks) return m;
      return {};
    }
    case 3: {
      Membership m = get_membership(r);
      if (r.complete() && valid(m)) return m;
      return {};
    }
    case 4: {
      Outcome m;
      r.get_bytes(m.key);
      m.code = r.get<Code>();
      m.rank = r.get<int32_t>();
      m.text = r.get_text(kMaxText);
      const int code = static_cast<int>(m.code);
      if (r.complete() && code >= 0 && code < kCodeCount) return m;
      return {};
    }
    // An Inquiry has nothing to check beyond its lengths: what it may ask is looked up by Diagnosis.
    case 5: {
      Inquiry m;
      m.number = r.get<uint64_t>();
      m.what = r.get_string(kMaxText);
      m.viewer = get_viewer(r);
      if (r.complete()) return m;
      return {};
    }
    // The number belongs to a question of this node, which Inquiries checks. A text that makes no sense
    // costs the asker one answer.
    case 6: {
      Reply m;
      m.number = r.get<uint64_t>();
      m.code = r.get<Code>();
      m.now_ns = r.get<int64_t>();
      m.text = r.get_text(kMaxReply);
      const int code = static_cast<int>(m.code);
      if (r.complete() && code >= 0 && code < kCodeCount) return m;
      return {};
    }
    case 7: {
      Successor m;
      m.group = r.get<uint64_t>();
      m.from = r.get<uint32_t>();
      m.to = r.get<uint32_t>();
      m.group_class = r.get_name(ipc::kMaxClassBytes);
      m.live = get_live_class(r);
      m.node = get_node(r);
      // A node that wants to go on has one engine at least.
      if (r.complete() && !m.node.rails.empty()) return m;
      return {};
    }
    case 8: {
      SuccessorReply m;
      m.group = r.get<uint64_t>();
      m.from = r.get<uint32_t>();
      m.to = r.get<uint32_t>();
      m.code = r.get<Code>();
      m.rank = r.get<int32_t>();
      m.text = r.get_text(kMaxText);
      m.live = get_live_class(r);
      m.node = get_node(r);
      const int code = static_cast<int>(m.code);
      // The engines connect only after kSuccess; other answers need no ends.
      if (r.complete() && code >= 0 && code < kCodeCount &&
          (m.code != Code::kSuccess || !m.node.rails.empty()))
        return m;
      return {};
    }
    default:
      return {};
  }
}

}  // namespace hdt::daemon
