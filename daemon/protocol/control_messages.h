// control_messages.h: the messages of daemons' control threads. Three protocols use the same control
// connections:
//
// 1. Making a group. Each rank's daemon sends a Join to the coordinator, the daemon that the group's id
//    names. When all ranks have joined, the coordinator sends the Membership to every node. Each node
//    then makes its part, connects to the others, and reports its Outcome; a bad one is passed on to all.
//    After that the coordinator is not needed any more. If a rank goes before the Membership, its daemon
//    sends a Cancel. (group_maker.h, rendezvous.h)
// 2. Diagnosis: an Inquiry and its Reply. (inquiries.h)
// 3. A daemon that was started again: Successor and SuccessorReply. (peer_rediscovery.h)
//
// Every message is foreign. The decoder checks what can be checked in the message alone; the receiver
// checks whether the sender may speak for the node that it names (ControlNetwork::is_from()).
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

// The maximum length in bytes of a message between control threads. A longer one ends its connection.
inline constexpr size_t kMaxControlBytes = size_t{16} << 20;

using ipc::GroupKey;

// The id of the group with this secret: its first 8 bytes. Until the secret is drawn, diagnosis names a
// group by its key in the same way.
inline uint64_t group_id(const GroupKey& secret) {
  uint64_t id = 0;
  std::memcpy(&id, secret.data(), sizeof id);
  return id;
}

// "This rank of my node joins the group with this key." One for each rank, to the coordinator. The first
// Join of a key determines the group's size and class; the others must agree.
struct Join {
  GroupKey key{};
  uint32_t ranks = 0;
  uint32_t rank = 0;
  std::string group_class;
  // the algorithm that the node's configuration has for the class; nothing: "auto"
  std::optional<collectives::Algorithm> algorithm;
  // how long the rank waits for the group
  int64_t timeout_ms = 0;
  NodeInfo node;
  // The rank that joins, as the node's daemon vouches for it: how the ranks meet, the process's number and
  // user on its node, and how long it has existed. The age distinguishes a late rank of the same run from one
  // of a later run (refused_meetings.h).
  ipc::Meeting meeting = ipc::Meeting::kSecret;
  uint32_t pid = 0;
  uint32_t uid = 0;
  int64_t process_age_ms = 0;
  // Another code than kSuccess: the rank cannot take part, and the coordinator gives the group up for this
  // reason.
  Code code = Code::kSuccess;
  std::string text = {};
};
// "This rank had joined and has failed, or must not be in the group." The coordinator gives the group up
// and informs all who have joined.
struct Cancel {
  GroupKey key{};
  Code code = Code::kRankLost;
  uint32_t rank = 0;
  std::string text;
};
// "The group consists of these." From the coordinator to every node of the group.
struct Membership {
  GroupKey key{};
  // Random, drawn by the coordinator for this group. The group's id is its first 8 bytes; members derive
  // the keys of later groups from it. Only members know it.
  GroupKey secret{};
  std::string group_class;
  // ordered by their lowest rank; a node's place here is its number in the group
  std::vector<NodeInfo> nodes;
  // for each rank the number of its node
  std::vector<uint32_t> node_of_rank;
};
// How the making of a group ended. From a node to the coordinator: kSuccess when its part is made, else
// why it could not be. From the coordinator to a node: never kSuccess; the group is not made. `rank` is
// the rank that is to blame; -1: none.
struct Outcome {
  GroupKey key{};
  Code code = Code::kSuccess;
  int32_t rank = -1;
  std::string text;
};
// A question of one daemon to another. Answered by a Reply with the same number.
struct Inquiry {
  uint64_t number = 0;
  // "clock": nothing but the Reply's time. "facts": NodeFacts with recent operations. "operations": the
  // same with all operations. "description": what hdtctl doctor shows of a node. "paths NIC|ADDRESS,...":
  // can you reach these data ports? (control/doctor.cc)
  std::string what;
  // with "facts" and "operations": on whose behalf, as the node that asks vouches for it
  Viewer viewer;
};
// The answer to an Inquiry.
struct Reply {
  uint64_t number = 0;
  Code code = Code::kSuccess;
  // now_ns() of the daemon that answers, when it answered
  int64_t now_ns = 0;
  // with kSuccess JSON, else why there is no answer
  std::string text;
};
// "My daemon was started in the place of the one that had node `from` of the group; you are node `to`."
// Answered by a SuccessorReply, and sent again until the group works with that node.
struct Successor {
  uint64_t group = 0;
  uint32_t from = 0;
  uint32_t to = 0;
  std::string group_class;
  // the group's class, as the sender knows it
  LiveClass live;
  // the sender; its rails are those for the class
  NodeInfo node;
};
// The answer to a Successor. kSuccess: "I go on with you; here I am." kInProgress: "Not yet, send it
// again": a rank is still to come back, or what one of the two knows of the class is not the newest. Any
// other code: the group does not go on, and `text` says why.
struct SuccessorReply {
  uint64_t group = 0;
  // as in the Successor that it answers
  uint32_t from = 0;
  uint32_t to = 0;
  Code code = Code::kSuccess;
  int32_t rank = -1;
  std::string text;
  // the group's class, as the node that answers knows it
  LiveClass live;
  NodeInfo node;
};
// The first byte of an encoded message is the index of its alternative here. A change of the order is a
// change of the protocol (kPeerVersion in handshake.h).
using ControlMessage = std::variant<std::monostate, Join, Cancel, Membership, Outcome, Inquiry, Reply,
                                    Successor, SuccessorReply>;

// The bytes of a message. Texts that are too long are cut.
std::vector<std::byte> encode(const ControlMessage& message);
// The message in these bytes. monostate: they are malformed.
ControlMessage decode_control(std::span<const std::byte> bytes);

}  // namespace hdt::daemon
