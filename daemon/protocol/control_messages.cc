// control_messages.cc: encodes and decodes what control_messages.h declares. The functions fields() name what
// each message consists of; writer and reader both follow them (base/codec.h). A message is accepted only
// if all its bytes were read and its values are possible (is_valid()): what is computed from a Membership
// later relies on that.
#include "daemon/protocol/control_messages.h"

#include <set>

#include "base/codec.h"
#include "ipc/segment.h"

namespace hdt::daemon {

namespace {

// Limits in bytes. A reply may be as long as a message, minus its other fields.
constexpr size_t kMaxControlText = 4096;
constexpr size_t kMaxReply = kMaxControlBytes - kMaxControlText;
// in the place of an algorithm: the configuration has "auto"
constexpr auto kAuto = static_cast<collectives::Algorithm>(0xff);

}  // namespace

// The settings are only a text here; they are parsed and checked where they are taken over
// (with_live_class()).
void fields(auto& c, Is<LiveClass> auto& live) {
  c.number(live.version);
  c.string(live.settings, kMaxSettings);
}

// All that the coordinator needs to compare ranks and to name them in an error: pid and user are what the
// rank's own daemon has read from its socket, and not what the process claims.
void fields(auto& c, Is<Join> auto& m) {
  c.bytes(m.key);
  c.number(m.ranks, m.rank);
  c.name(m.group_class, ipc::kMaxClassBytes);
  c.number_or(kAuto, m.algorithm);
  c.number(m.timeout_ms);
  fields(c, m.node);
  c.number(m.meeting, m.pid, m.uid, m.process_age_ms, m.code);
  c.text(m.text, kMaxControlText);
}

void fields(auto& c, Is<Cancel> auto& m) {
  c.bytes(m.key);
  c.number(m.code, m.rank);
  c.text(m.text, kMaxControlText);
}

// The nodes once, and for each rank the index of its node: the ends of a node are long, and a node has many
// ranks.
void fields(auto& c, Is<Membership> auto& m) {
  c.bytes(m.key);
  c.bytes(m.secret);
  c.name(m.group_class, ipc::kMaxClassBytes);
  c.list(m.nodes, ipc::kMaxRanks);
  c.list(m.node_of_rank, ipc::kMaxRanks, [&](auto& node) { c.number(node); });
}

void fields(auto& c, Is<Outcome> auto& m) {
  c.bytes(m.key);
  c.number(m.code, m.rank);
  c.text(m.text, kMaxControlText);
}

// The viewer travels with the question, because the node that answers decides what the asker may see.
void fields(auto& c, Is<Inquiry> auto& m) {
  c.number(m.number);
  c.cut_string(m.what, kMaxControlText);
  fields(c, m.viewer);
}

// The sender's clock goes along, so that the asker can translate the times in the text.
void fields(auto& c, Is<Reply> auto& m) {
  c.number(m.number, m.code, m.now_ns);
  c.text(m.text, kMaxReply);
}

// The live settings of the class go along in both directions: nodes with different ones must agree on them
// before they connect.
void fields(auto& c, Is<Successor> auto& m) {
  c.number(m.group, m.from, m.to);
  c.name(m.group_class, ipc::kMaxClassBytes);
  fields(c, m.live);
  fields(c, m.node);
}

// The same place of the group as in the question, so that the asker finds what it asked for without keeping
// a number.
void fields(auto& c, Is<SuccessorReply> auto& m) {
  c.number(m.group, m.from, m.to, m.code, m.rank);
  c.text(m.text, kMaxControlText);
  fields(c, m.live);
  fields(c, m.node);
}

namespace {

bool is_valid(std::monostate) { return true; }
// The rank is one of the group's, someone waits for the group, the enums are known, and the node has at
// least one engine.
bool is_valid(const Join& m) {
  return m.meeting <= ipc::Meeting::kAgain && m.process_age_ms >= 0 && m.ranks > 0 &&
         m.ranks <= ipc::kMaxRanks && m.rank < m.ranks && m.timeout_ms > 0 && !m.node.rails.empty() &&
         is_code(m.code) && (!m.algorithm || static_cast<int>(*m.algorithm) < collectives::kAlgorithmCount);
}
// A Cancel has a reason, so its code is never kSuccess.
bool is_valid(const Cancel& m) {
  return is_code(m.code) && m.code != Code::kSuccess && m.rank < ipc::kMaxRanks;
}
// Every node appears once, has a rank and at least one engine, and has no more ranks than fit on a node.
// Everything that is computed from a membership relies on this.
bool is_valid(const Membership& m) {
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
// kSuccess is an outcome as well: the node has made its part.
bool is_valid(const Outcome& m) { return is_code(m.code); }
// Diagnosis looks up what an Inquiry asks for.
bool is_valid(const Inquiry&) { return true; }
// The number belongs to a question of this node, which Inquiries checks. A text that makes no sense costs the
// asker one answer.
bool is_valid(const Reply& m) { return is_code(m.code); }
// A version grows by one with each change, so a huge one was not counted.
bool is_valid(const LiveClass& live) { return live.version <= kMaxClassVersion; }
// A node that wants to go on has one engine at least.
bool is_valid(const Successor& m) { return is_valid(m.live) && !m.node.rails.empty(); }
// The engines connect only after kSuccess; other answers need no ends.
bool is_valid(const SuccessorReply& m) {
  return is_valid(m.live) && is_code(m.code) && (m.code != Code::kSuccess || !m.node.rails.empty());
}

}  // namespace

// The kind on the wire is the index in the variant. A new message is therefore added at its end, and the
// peer protocol's version grows (handshake.h).
std::vector<std::byte> encode(const ControlMessage& message) { return Writer().one_of(message).take(); }

// std::monostate for anything that no correct daemon sends, which the caller ignores.
ControlMessage decode_control(std::span<const std::byte> bytes) {
  ControlMessage message;
  if (!Reader(bytes).one_of(message).complete()) return {};
  if (!std::visit([](const auto& m) { return is_valid(m); }, message)) return {};
  return message;
}

}  // namespace hdt::daemon
