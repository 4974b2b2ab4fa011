// wire.h: the messages that the engines of two nodes exchange over a link. There are two kinds. A frame
// is the header of a write: the link delivers it when the write's payload is in place. A message
// (`EngineMessage`) travels as a control message of the link.
//
// A link gives no order between the two, and a group may use an old and a new link at once while its
// class changes. So no item depends on the place of another one: counters only grow and are sent as
// totals, and chunks, cells and calls carry their numbers. A receiver may see an item late, but never
// needs to know what came before it.
//
// Every item begins with the id of its group; 0 is the id of no group. `from` is the number of the
// sending node in the group; the receiver compares it with the node at the other end of the link and
// ignores an item in another node's name. Items are foreign: the decoders check their form, EngineGroup
// checks them against its group.
//
// All functions are pure and may be called from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "daemon/protocol/node.h"
#include "ipc/journal.h"
#include "ipc/measurements.h"
#include "ipc/segment.h"
#include "transports/link/link.h"

namespace hdt::daemon {

// Payload `tag` of chunk `chunk` from node `from` has landed in the slot of that chunk. Tag k: it is the
// k-th payload from that node in the chunk's schedule, counted from 0 (collectives/schedule.h).
struct ChunkFrame {
  uint64_t group, chunk;
  uint32_t from, tag;
};
// Cell `index` (counted from 0 through the life of the group) of the ring from rank `source` to rank
// `destination` has landed in the receiver's ring.
struct CellFrame {
  uint64_t group, index;
  uint32_t source, destination;
};
// A burst of a link's measurement has landed (link_probe.h). Nothing reads its payload.
struct ProbeFrame {
  // always 0: a measurement belongs to a link, not to a group
  uint64_t group;
};
// The first byte of a header is the index of its alternative here.
using Frame = std::variant<std::monostate, ChunkFrame, CellFrame, ProbeFrame>;

transport::LinkHeader encode(const Frame& frame);
// The frame in the header of a write. monostate: it is not a frame of this protocol. The numbers in it
// are not checked here.
Frame decode_frame(const transport::LinkHeader& header);

// "My segment of this group is ready; write to it with this key." The first message for a group on each
// link. It is also the answer with which a group moves to another link of its class (class_change.h): the
// region's key belongs to a backend, so each link needs its own.
struct GroupHello {
  uint64_t group;
  uint32_t from;
  transport::RegionKey region;
  // How long, in ms, a successor of this node's daemon may take to come after the daemon has ended; 0:
  // there will be none, so nobody waits. At most one hour.
  int64_t restart_ms;
};
// "I have everyone's hello, and what all have measured." A node lets its ranks begin when it has this
// message of all others. So no rank's init succeeds while another node still lacks something.
struct GroupReady {
  uint64_t group;
  uint32_t from;
};
// The next three messages follow each other when a daemon was started again. Both ends of its new link
// send them in this order: ChunkState and RingState as often as needed, then Resume. Until an end has
// the other's Resume it writes nothing.
//
// "These tags of your payloads of this chunk have come." A node sends several of them if there are more
// than kMaxTags.
struct ChunkState {
  uint64_t group, chunk;
  uint32_t from;
  std::vector<uint32_t> tags;
};
// "This has landed of the ring from rank `source` to rank `destination`, which is a rank of mine, and the
// cells below `tail` are consumed." `landed` is the word MessageRing::landed as ipc/segment.h describes it.
struct RingState {
  uint64_t group;
  uint32_t source, destination;
  uint64_t landed, tail;
};
// "That was all. Everything of the chunks below `exchanged` has come; you may write chunks below
// `credit`; I have finished the calls below `finished`."
struct Resume {
  uint64_t group;
  uint32_t from;
  uint64_t exchanged, credit, finished;
};
// "You may write chunks below `chunks` to me": their slots are free here. A total, so the largest one
// counts.
struct ChunkCredit {
  uint64_t group;
  uint32_t from;
  uint64_t chunks;
};
// "Rank `destination` has consumed the cells below `tail` of its ring from rank `source`." The places of
// these cells may be written again.
struct CellCredit {
  uint64_t group;
  uint32_t source, destination;
  uint64_t tail;
};
// "All my ranks have entered call `sequence`, which is this one." Each node sends it to the next node in
// the ring of nodes, which compares the call with that of its own ranks. If any two nodes differ, two
// neighbours differ.
struct CallMessage {
  uint64_t group;
  uint32_t from;
  uint64_t sequence;
  ipc::Call call;
};
// "Write what is for my output of call `sequence` to `offset` (bytes) of this region", or, with `direct`
// 0, to the slots of my segment. It is sent for each call that may be direct (ipc/partition.h), to all nodes,
// and nobody writes to the output of such a call before it has come.
struct OutputMessage {
  uint64_t group;
  uint32_t from;
  uint64_t sequence;
  // The call that the region was offered for: nobody writes to a buffer that was made for another call.
  ipc::Call call;
  uint8_t direct;
  transport::RegionKey region;
  uint64_t offset;
};
// "Rank `source`, which departs, has written `cells` cells in all to rank `destination`, a rank of yours."
// Sent before its RankDeparted for every ring that has had cells, as cells may come later than both: links
// carry them on all rails.
struct RingEnded {
  uint64_t group;
  uint32_t source, destination;
  uint64_t cells;
};
// "Rank `rank` has departed after `entered` calls." A later call that needs this rank fails, and so
// does a message that it has not sent, or for which it has made no room.
struct RankDeparted {
  uint64_t group;
  uint32_t rank;
  uint64_t entered;
};
// "All my ranks have departed and nothing of mine will be written to you any more." The last message of a
// node in a group. It waits until the group is on one link, since links are not ordered among each other.
struct NodeDeparted {
  uint64_t group;
  uint32_t from;
};
// "All my ranks have taken their seats." When a node has this of all others, the calls that make the
// group return on its ranks.
struct GroupSeated {
  uint64_t group;
  uint32_t from;
};
// "The group has failed." The receiver fails its part of the group with the same code, rank and text.
// `rank` is the rank that caused the failure; -1: none is known.
struct GroupFailed {
  uint64_t group;
  Code code;
  int32_t rank;
  std::string text;
};
// "I have no such group (any more)": the answer to any message or frame that cannot come before this
// node's hello. A receiver that still believes that the group works fails it. This message is never
// answered, so two nodes without the group do not answer each other for ever.
struct GroupUnknown {
  uint64_t group;
};
// The messages of a link's measurement, between its two ends (link_probe.h).
struct ProbeMessage {
  enum class Kind : uint8_t {
    // bursts may land at `landing`
    kHere = 1,
    // as kHere, and the sender knows its rates of this link already
    kKnown,
    // A round trip: kPing is answered by kPong at once.
    kPing,
    kPong,
    // all bytes of a burst have landed here
    kLanded,
    // the sender's bursts are over; now the receiver sends its own
    kTurn,
  };
  // always 0
  uint64_t group;
  Kind kind;
  // meaningful in kHere and kKnown only
  transport::RegionKey landing;
};
// "This is what I have measured", to all other nodes of the group. With everyone's message all nodes hold
// the same table, so all choose the same algorithms.
struct RatesMessage {
  uint64_t group;
  uint32_t from;
  ipc::NodeRates rates;
};
// A step towards other rates while the group runs (daemon/group/rate_changes.h). Node 0 and each other node
// exchange these.
struct RateChangeMessage {
  enum class Kind : uint8_t {
    // To node 0: "so much my links have"; `number` counts these messages of a daemon's life.
    kNow = 1,
    // From node 0: "rates are going to change; tell me up to which call you have read". `number` is that of
    // the change, here and below.
    kPropose,
    // To node 0: "I have read no call from `call` on, and read none before the change."
    kHold,
    // From node 0: "calls from `call` on have these rates."
    kCommit,
    // To node 0: "all calls before that one are over here."
    kPassed,
  };
  uint64_t group;
  uint32_t from;
  Kind kind;
  uint64_t number;
  uint64_t call;
  // kNow: of the sender's link to each node; kCommit: of all links, as of ipc::RatesChange; otherwise empty.
  std::vector<ipc::LinkPart> parts;
};
// The next four messages change a class while its groups run, in two phases (class_change.h). "Can you do
// this?", from the node that was asked by hdtctl to all other nodes of the group.
struct ClassPrepare {
  uint64_t group;
  // random; all messages of one change carry it
  uint64_t change;
  // lines "class.NAME.KEY=VALUE"; empty: each node goes by its own file
  std::string settings;
};
// "After this change I can be reached at these ends", to the node that dials.
struct ClassEnds {
  uint64_t group;
  uint64_t change;
  std::vector<RailEnd> ends;
};
// The answer to a ClassPrepare. A `code` other than kSuccess ends the change on all nodes; `text` says
// why.
struct ClassReady {
  uint64_t group;
  uint64_t change;
  Code code;
  std::string text;
};
// "All can: do it" (`commit` 1), or "forget it" (`commit` 0).
struct ClassCommit {
  uint64_t group;
  uint64_t change;
  uint8_t commit;
};
// "From here on my messages and writes for this group take the link on which I have sent my latest hello
// for it." The sender's last message for the group on the old link; what it had begun there may still
// arrive.
struct LinkMoved {
  uint64_t group;
};
// "No group of mine uses this link any more, and all that I wrote has arrived." When both ends have sent
// it, the end that dialled closes the link.
struct LinkDrained {
  // always 0: it concerns the link
  uint64_t group;
};
// The first byte of an encoded message is the index of its alternative here. A change of the order is a
// change of the protocol (kPeerVersion in handshake.h).
using EngineMessage =
    std::variant<std::monostate, GroupHello, ChunkCredit, CellCredit, CallMessage, RankDeparted, NodeDeparted,
                 GroupFailed, OutputMessage, ProbeMessage, RatesMessage, ClassPrepare, ClassEnds, ClassReady,
                 ClassCommit, LinkMoved, LinkDrained, ChunkState, RingState, Resume, GroupSeated, GroupReady,
                 GroupUnknown, RateChangeMessage, RingEnded>;

// The maximum number of tags in one ChunkState. If there are more, several are sent.
inline constexpr uint32_t kMaxTags = 1024;

// The bytes of a message. Texts are cut to 2048 bytes so that every message fits a link's control
// message.
std::vector<std::byte> encode(const EngineMessage& note);
// The message in these bytes. monostate: they are malformed; the engine then closes the link. Only the
// form is checked: that a rank or a node exists in the group, EngineGroup checks.
EngineMessage decode_engine_message(std::span<const std::byte> bytes);
// The group that a message is for; 0 if it is for none.
uint64_t group_of(const EngineMessage& note);

}  // namespace hdt::daemon
