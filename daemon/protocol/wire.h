// wire.h: what engines say to each other over a link. Frames travel as the header of a write (its payload is
// already in place when the frame is seen); notes travel as control messages. Links give no order between the
// two, so every item stands for itself: counters only grow, calls and chunks carry their number.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "daemon/protocol/node.h"
#include "ipc/measurements.h"
#include "ipc/segment.h"
#include "transports/link/link.h"

namespace hdt::daemon {

// Payload `tag` of piece `piece` from node `from` has landed in the slot.
struct PieceFrame {
  uint64_t group, piece;
  uint32_t from, tag;
};
// Chunk `index` of the channel from rank `source` to rank `destination` has landed in the ring.
struct ChunkFrame {
  uint64_t group, index;
  uint32_t source, destination;
};
// A burst of a probe has landed (link_probe.h).
struct ProbeFrame {
  uint64_t group;  // 0: of none
};
using Frame = std::variant<std::monostate, PieceFrame, ChunkFrame, ProbeFrame>;

transport::LinkHeader encode(const PieceFrame& frame);
transport::LinkHeader encode(const ChunkFrame& frame);
transport::LinkHeader encode(const ProbeFrame& frame);
// monostate: not a frame of this protocol.
Frame decode_frame(const transport::LinkHeader& header);

// "My segment of this group is ready; write to it with this key."
struct GroupHello {
  uint64_t group;
  uint32_t from;
  transport::RegionKey region;
  int64_t restart_ms;  // so long after my end a successor may come
};
// "I have everyone's hello, and what all have measured." Who has this of all lets its ranks begin: so no
// rank's init succeeds while another node still lacks something.
struct GroupReady {
  uint64_t group;
  uint32_t from;
};
// What follows is said when a daemon was started again, by both ends of its new link, in this order. Until
// then neither writes. "Of your payloads of this piece these tags have come."
struct PieceState {
  uint64_t group, piece;
  uint32_t from;
  std::vector<uint32_t> tags;
};
// "Of the channel from rank `source` to rank `destination`, which is mine, this has landed (ipc/segment.h),
// and chunks below `tail` are consumed."
struct ChannelState {
  uint64_t group;
  uint32_t source, destination;
  uint64_t landed, tail;
};
// "That was all. Of pieces below `exchanged` everything has come; you may write pieces below `credit`; I have
// finished the calls below `finished`."
struct Resume {
  uint64_t group;
  uint32_t from;
  uint64_t exchanged, credit, finished;
};
// "You may write pieces below `pieces` to me."
struct PieceCredit {
  uint64_t group;
  uint32_t from;
  uint64_t pieces;
};
// "Rank `destination` has consumed chunks below `tail` of its channel from rank `source`."
struct ChunkCredit {
  uint64_t group;
  uint32_t source, destination;
  uint64_t tail;
};
// "All my ranks have entered call `sequence`, which is this one."
struct CallNote {
  uint64_t group;
  uint32_t from;
  uint64_t sequence;
  session::Call call;
};
// "What you write to my output for call `sequence` goes to `offset` of this region", or, with `direct` 0, to
// the slots of my segment. Of calls that may be direct (ipc/plan.h); to all nodes.
struct OutputNote {
  uint64_t group;
  uint32_t from;
  uint64_t sequence;
  session::Call call;  // nobody writes to a buffer that was made for another call
  uint8_t direct;
  transport::RegionKey region;
  uint64_t offset;
};
// "Rank `rank` has left after `entered` calls."
struct RankLeft {
  uint64_t group;
  uint32_t rank;
  uint64_t entered;
};
// "All my ranks have left and nothing of mine will be written to you any more."
struct NodeLeft {
  uint64_t group;
  uint32_t from;
};
// "All my ranks have taken their seats." With everyone's, the calls that make the group return.
struct GroupSeated {
  uint64_t group;
  uint32_t from;
};
struct GroupFailed {
  uint64_t group;
  Code code;
  int32_t rank;
  std::string text;
};
// "I have no such group (any more)": the answer to what cannot be said before this node's hello. Who still
// believes that the group works fails it. Never answered.
struct GroupUnknown {
  uint64_t group;
};
// Between the two ends of a link, which measure it (link_probe.h).
struct ProbeNote {
  enum class Kind : uint8_t {
    kHere = 1,  // bursts may land at `landing`
    kKnown,     // the same; and my rates are known already
    kPing,
    kPong,
    kLanded,  // a burst has
    kTurn,    // mine are over: yours
  };
  uint64_t group;  // 0: of none
  Kind kind;
  transport::RegionKey landing;  // kHere, kKnown
};
// "This is what I have measured", to all other nodes of the group: with everyone's, all hold the same table.
struct RatesNote {
  uint64_t group;
  uint32_t from;
  session::NodeRates rates;
};
// Changing a class while its groups run (class_change.h). "Can you do this?", to all other nodes of the
// group.
struct ClassPrepare {
  uint64_t group;
  uint64_t change;       // random
  std::string settings;  // lines "class.NAME.KEY=VALUE"; empty: your configuration stays as it is
};
// "After this change I can be reached there", to the node that dials.
struct ClassEnds {
  uint64_t group;
  uint64_t change;
  std::vector<RailEnd> ends;
};
// The answer to a ClassPrepare.
struct ClassReady {
  uint64_t group;
  uint64_t change;
  Code code;
  std::string text;
};
// "All can: do it", or "forget it".
struct ClassCommit {
  uint64_t group;
  uint64_t change;
  uint8_t commit;
};
// "From here on my notes and writes for this group take the link on which I have said hello for it last."
struct LinkMoved {
  uint64_t group;
};
// "No group of mine uses this link any more, and all that I wrote has arrived."
struct LinkUnused {
  uint64_t group;  // 0: of none
};
using Note = std::variant<std::monostate, GroupHello, PieceCredit, ChunkCredit, CallNote, RankLeft, NodeLeft,
                          GroupFailed, OutputNote, ProbeNote, RatesNote, ClassPrepare, ClassEnds, ClassReady,
                          ClassCommit, LinkMoved, LinkUnused, PieceState, ChannelState, Resume, GroupSeated,
                          GroupReady, GroupUnknown>;

// Of a PieceState; more go in another one.
inline constexpr uint32_t kMaxTags = 1024;

std::vector<std::byte> encode(const Note& note);
// monostate: malformed.
Note decode_note(std::span<const std::byte> bytes);
uint64_t group_of(const Note& note);

}  // namespace hdt::daemon
