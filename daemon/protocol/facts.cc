// facts.cc: facts to JSON and back. The macros below name the fields that travel; a field that is missing
// in a text makes it invalid, so daemons of one peer version have the same fields. facts.h has the
// meaning of each field.
#include "daemon/protocol/facts.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/foreign_json.h"
#include "ipc/segment.h"

namespace hdt::ipc {

// A list of values, not an object: a trace holds a thousand operations per rank, and the names of the
// fields would be most of the text.
static void to_json(nlohmann::json& json, const Operation& o) {
  json = {o.kind,  o.text,       o.sequence,   o.bytes,    o.peer,
          o.moved, o.entered_ns, o.started_ns, o.ended_ns, static_cast<int>(o.code)};
}

// In the order of to_json(). at() throws for a list that is too short, and facts_of() catches it.
static void from_json(const nlohmann::json& json, Operation& o) {
  o.kind = json.at(0).get<std::string>();
  o.text = json.at(1).get<std::string>();
  o.sequence = json.at(2).get<uint64_t>();
  o.bytes = json.at(3).get<uint64_t>();
  o.peer = json.at(4).get<int64_t>();
  o.moved = json.at(5).get<uint64_t>();
  o.entered_ns = json.at(6).get<int64_t>();
  o.started_ns = json.at(7).get<int64_t>();
  o.ended_ns = json.at(8).get<int64_t>();
  // Clamped, so that everything that is later looked up by the code is in its table.
  o.code = static_cast<Code>(std::clamp(json.at(9).get<int>(), 0, kCodeCount - 1));
}

}  // namespace hdt::ipc

namespace hdt::daemon {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFacts, rank, pid, process, departed, end, calls, operations)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PeerFacts, node, linked, writes, arrivals, quiet_ns, in_flight)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GroupNodeFacts, name, control, ranks)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GroupFacts, id, name, group_class, users, ended, code, failed_rank,
                                   failure, nodes, local, peers)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RailFacts, node, backend, nic, local, remote, state, last_error, losses,
                                   bytes_per_s, in_flight, megabits)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MakingRank, rank, node)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MakingFacts, id, group_class, users, coordinates, ranks, joined,
                                   rendezvous, last_error, complete, left_ns, lacks)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeFacts, name, control, answered, silence, offset_ns, now_ns, groups,
                                   rails, making, hidden)

// The conversions that the macros above make. dump() is left to the caller, which knows what to do with
// bytes that are no UTF-8.
nlohmann::json to_text(const NodeFacts& facts) { return facts; }

namespace {

// One text for all of them, so that hdtctl can say why a node counts as silent.
Status nonsense(const std::string& what) {
  return {Code::kInvalidArgument, "facts that make no sense: " + what};
}

// A verdict counts up to some of these numbers. A number costs its sender a few bytes, but whoever counts
// up to it much more. So every such number must be no more than there can be. Returns what is wrong;
// null: nothing.
const char* beyond_limits(const NodeFacts& facts) {
  // the ranks of all groups together
  constexpr uint64_t kMostMaking = uint64_t{16} * ipc::kMaxRanks;
  for (const GroupFacts& group : facts.groups) {
    if (!is_code(static_cast<Code>(group.code))) return "a failure of no kind";
    size_t ranks = group.local.size();
    for (const GroupNodeFacts& place : group.nodes) ranks += place.ranks.size();
    // Each rank appears at most twice: among `local`, and in `nodes`.
    if (ranks > size_t{2} * ipc::kMaxRanks) return "too many ranks";
  }
  uint64_t making = 0;
  for (const MakingFacts& group : facts.making) {
    if (group.ranks > ipc::kMaxRanks) return "a group of too many ranks";
    making += group.ranks;
  }
  return making > kMostMaking ? "too many ranks of groups that are being made" : nullptr;
}

}  // namespace

// Foreign text. parse_foreign_json() limits its depth and size; here its types and numbers are checked.
Result<NodeFacts> facts_of(const std::string& text) {
  const auto json = parse_foreign_json(text);
  if (!json.is_ok())
    return Status(Code::kInvalidArgument, "facts that cannot be read: " + json.status().message());
  // The JSON library would round a fraction to an integer silently.
  if (has_fractions(json.value())) return nonsense("a number that is no integer");
  try {
    auto facts = json.value().get<NodeFacts>();
    if (const char* wrong = beyond_limits(facts)) return nonsense(wrong);
    return facts;
  } catch (const nlohmann::json::exception& error) {
    return nonsense(error.what());
  }
}

namespace {

// The maximum number of operations per rank that keep_recent() leaves.
constexpr size_t kMostUnderWay = 64;
constexpr size_t kMostEnded = 4;

}  // namespace

// Engines copy the raw records of ranks, which is quick; the translation into operations happens on the
// control thread. `scale` translates the records' ticks into ns of this node's monotonic clock.
void complete(GroupFacts& group, const TickScale& scale) {
  for (RankFacts& rank : group.local) {
    rank.operations = ipc::read(rank.records, scale);
    rank.records.clear();
    // A rank that has just joined may not have a seat, and so no pid, yet. A rank that has departed may
    // have ended in order; its process is not looked for.
    if (!rank.departed) rank.process = rank.pid != 0 ? process_state(rank.pid) : "?";
  }
}

// For `hdtctl why`, which needs what is under way and what came just before. The trace asks for everything.
void keep_recent(NodeFacts& facts) {
  for (GroupFacts& group : facts.groups) {
    for (RankFacts& rank : group.local) {
      // The list is ordered from old to new. The first ones that have ended are dropped until kMostEnded
      // are left; the first kMostUnderWay of those under way are kept.
      size_t under_way = 0;
      size_t ended = std::count_if(rank.operations.begin(), rank.operations.end(),
                                   [](const auto& operation) { return operation.ended_ns != 0; });
      std::erase_if(rank.operations, [&](const ipc::Operation& operation) {
        if (operation.ended_ns == 0) return under_way++ >= kMostUnderWay;
        return ended-- > kMostEnded;
      });
    }
  }
}

// Whether /proc shows this process's PID namespace. A container with the host's /proc sees other
// processes under the same numbers. /proc/self resolves to the reader's number in the namespace of the
// mount, so it must equal getpid().
static bool proc_is_ours() {
  static const bool ours = [] {
    char self[32] = {};
    return ::readlink("/proc/self", self, sizeof self - 1) > 0 && std::to_string(::getpid()) == self;
  }();
  return ours;
}

// One letter as in /proc/PID/stat; "" if there is no such process; "?" if it cannot be known from here. The
// process may end, and its number be used again, between two calls: the state is for diagnosis,
// and no group fails because of it.
std::string process_state(uint32_t pid) {
  if (!proc_is_ours()) return "?";
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  // The second field is the process's name in brackets, which may itself hold brackets and blanks. So the
  // last bracket ends it.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return "";
  return text.substr(name_end + 2, 1);
}

}  // namespace hdt::daemon
