// control_messages.h: how daemons agree on a group. Each rank's daemon sends a Join to the coordinator (the
// daemon that the group's id names); when all ranks have joined, the coordinator sends the Membership to
// every node; each node reports its Outcome, and a bad one is passed on to all. After that the coordinator is
// not needed any more. And how they ask each other, for diagnosis.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "collectives/schedule.h"
#include "daemon/protocol/live_classes.h"
#include "daemon/protocol/node.h"
#include "daemon/protocol/viewer.h"
#include "ipc/messages.h"

namespace hdt::daemon {

// The longest message between control threads.
inline constexpr size_t kMaxControlBytes = size_t{16} << 20;

using session::GroupKey;

// The id of the group with this secret. Until the secret is drawn diagnosis names a group by its key in the
// same way.
inline uint64_t group_id(const GroupKey& secret) {
  uint64_t id = 0;
  std::memcpy(&id, secret.data(), sizeof id);
  return id;
}

struct Join {
  GroupKey key{};
  uint32_t ranks = 0;
  uint32_t rank = 0;
  std::string group_class;
  std::optional<collectives::Algorithm>
      algorithm;  // that the node's configuration has for the class; none: "auto"
  int64_t timeout_ms = 0;
  NodeInfo node;
  // Who joins, as the node's daemon vouches for it.
  session::Meeting meeting = session::Meeting::kSecret;
  uint32_t pid = 0;
  uint32_t uid = 0;
  int64_t process_age_ms = 0;
};
struct Cancel {  // a rank that had joined is gone, or must not be in the group
  GroupKey key{};
  Code code = Code::kRankLost;
  uint32_t rank = 0;
  std::string text;
};
struct Membership {
  GroupKey key{};
  // Drawn by the coordinator for this group. The group's id is its first 8 bytes; members derive further keys
  // from it.
  GroupKey secret{};
  std::string group_class;
  std::vector<NodeInfo> nodes;  // ordered by their lowest rank
  std::vector<uint32_t> node_of_rank;
};
struct Outcome {
  GroupKey key{};
  Code code = Code::kSuccess;
  int32_t rank = -1;
  std::string text;
};
// One daemon asks another; answered by a Reply with the same number.
struct Inquiry {
  uint64_t number = 0;
  std::string what;  // "clock", "facts", "operations", "description"
  Viewer viewer;     // facts, operations: on whose behalf, as the node that asks vouches for it
};
struct Reply {
  uint64_t number = 0;
  Code code = Code::kSuccess;
  int64_t now_ns = 0;  // the clock of who answers
  std::string text;    // JSON; of a failure, why
};
// "My daemon was started in the place of the one that had node `from` of the group; you are node `to`."
// Answered by a Known.
struct Successor {
  uint64_t group = 0;
  uint32_t from = 0;
  uint32_t to = 0;
  std::string group_class;
  LiveClass live;  // the class, as the sender knows it
  NodeInfo node;
};
// "I go on with you; here I am." kInProgress: not yet, say it again: a rank is still to come back, or what
// one of the two knows of the class is not the newest. Else why the group does not go on.
struct Known {
  uint64_t group = 0;
  uint32_t from = 0;  // as in the Successor
  uint32_t to = 0;
  Code code = Code::kSuccess;
  int32_t rank = -1;
  std::string text;
  LiveClass live;  // the class, as who answers knows it
  NodeInfo node;
};
using ControlMessage =
    std::variant<std::monostate, Join, Cancel, Membership, Outcome, Inquiry, Reply, Successor, Known>;

std::vector<std::byte> encode(const ControlMessage& message);
// monostate: malformed.
ControlMessage decode_control(std::span<const std::byte> bytes);

}  // namespace hdt::daemon
