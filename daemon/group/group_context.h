// group_context.h: what the parts of a group in an engine share: its identity, its memory, the other
// nodes, and how writes and messages get to them.
//
// EngineGroup owns the one GroupContext of a group. ChunkRunner and RingForwarder hold a reference to
// it. Everything here belongs to the thread of the engine that has the group. The segment is the
// exception: ranks and other nodes write to it, so whatever is read from it is foreign.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/group/direct_memory.h"
#include "daemon/protocol/node.h"
#include "daemon/protocol/wire.h"
#include "ipc/partition.h"
#include "ipc/segment.h"
#include "transports/link/link.h"

namespace hdt::daemon {

// Names what a write was for, so that the report of its completion needs no look-up table. It travels as
// WriteRequest::token through the link and comes back with on_sent(). A group keeps its group index
// (`group_index`) until none of its writes is under way (EngineGroup::finished()), so a token never names
// another group.
struct WriteToken {
  enum class Kind : uint8_t {
    // a large payload of a chunk (`Chunk`); its memory is in use until the write has arrived
    kChunk = 0,
    // a cell of a message ring (`CellHeader`)
    kCell = 1,
    // a small payload of a chunk, of which the journal keeps a copy (ipc/journal.h); nothing waits for
    // its completion
    kKept = 2
  };
  // the group's index in the engine's table, 26 bits
  uint32_t group_index;
  Kind kind;
  // kChunk: the step of the schedule; kCell: the number of the ring (Layout::ring_index()); kKept: 0
  uint32_t number;
  // the chunk's or the cell's number modulo the number of slots, 4 bits
  uint32_t slot;

  // The bits are, from the lowest: 4 for `slot`, 32 for `number`, 2 for `kind`, 26 for `group_index`.
  uint64_t pack() const {
    return uint64_t{group_index} << 38 | uint64_t{static_cast<uint8_t>(kind)} << 36 | uint64_t{number} << 4 |
           slot;
  }
  static WriteToken unpack(uint64_t value) {
    return {static_cast<uint32_t>(value >> 38), static_cast<Kind>(value >> 36 & 3),
            static_cast<uint32_t>(value >> 4), static_cast<uint32_t>(value & 15)};
  }
};

// Another node of the group, as this node sees it. It is joining while `ready` is false, open while
// open() holds, suspended while `suspended` is set, and at last departed or failed (docs/glossary.md,
// "States").
//
// Writers: EngineGroup, from messages and from what the engine reports of links; GroupContext counts
// writes.
struct GroupPeer {
  // the link that messages and writes take; null before it is up and after it went down
  transport::Link* link = nullptr;
  // the engine's number of that link's backend
  uint32_t backend = 0;
  // the key of the node's data part, from its latest hello; valid for `backend` only
  transport::RegionKey region;
  // the node's hello has come: its memory may be written
  bool ready = false;
  // the node has sent GroupReady: it has what it needs of every node
  bool has_all = false;
  // The node has departed: it has sent NodeDeparted.
  bool departed = false;
  // The node has failed: its last link went down, it was suspended for too long, or its daemon has given the
  // group up.
  bool failed = false;
  // writes on `link` whose on_sent() is still to come
  uint32_t writes_in_flight = 0;
  // writes made so far, without those over old links; for diagnosis
  uint64_t writes = 0;
  // Link::written() after the latest of these writes on `link`, so link->arrived(last_write) asks
  // whether all have arrived
  uint64_t last_write = 0;
  // frames that came from the node: payloads of chunks, and cells; for diagnosis
  uint64_t arrivals = 0;
  // when the latest of them came, by now_ns(); 0: none has
  int64_t arrived_ns = 0;
  // the geometry of the node's own segment; 1, 1, 1 only until make_context() has computed it
  ipc::Layout layout{1, 1, 1};
  // the number of the link's message in which this node's GroupSeated went out; 0: none did on this link
  uint64_t seat_message = 0;
  // The node is suspended: its daemon has ended, or this daemon was started again. It ends when both ends
  // have sent what had come (Resume in wire.h): then the node is open. It also ends at `suspended_until`:
  // then the node, and with it the group, has failed.
  bool suspended = false;
  Deadline suspended_until = Deadline::never();
  // why the node was suspended, for the failure's text
  Status suspended_why;
  // how long the node is waited for if its daemon ends, in ms, from its hello; 0: not at all
  int64_t restart_ms = 0;
  // While the node is suspended: which payloads of ours it has, by its own account, as tags by chunk
  // (ChunkState), ...
  std::map<uint64_t, std::set<uint32_t>> their_chunks;
  // ... and which cells of the rings from our ranks to its ranks (RingState).
  std::vector<RingState> their_rings;
  // A link of a class change on which we have sent our hello. We move to it when the peer's hello comes
  // on it. null: none.
  transport::Link* offered = nullptr;
  uint32_t offered_backend = 0;
  // Links that the group has moved away from, until nothing is under way on them. Links have no order
  // among each other, and none is needed: what messages and frames say holds whenever they come. Only a
  // write to a region must take a link of the backend that the region's key belongs to.
  struct OldLink {
    transport::Link* link = nullptr;
    // as the members of the same names above
    uint32_t writes_in_flight = 0;
    uint64_t last_write = 0;
    bool arrived() const { return link->arrived(last_write); }
  };
  // in the order in which they were left
  std::vector<OldLink> old;
  // links on which the peer has sent LinkMoved: its messages for this group do not come there any more
  std::vector<const transport::Link*> moved;

  // The node may still write to us: it has neither departed nor failed.
  bool takes_part() const { return !departed && !failed; }
  // Writes to the node may be made now.
  bool open() const { return link != nullptr && ready && !suspended; }
  // `which` is the link in use, the offered one, or an old one.
  bool uses(const transport::Link& which) const {
    return link == &which || offered == &which ||
           std::any_of(old.begin(), old.end(), [&](const OldLink& other) { return other.link == &which; });
  }
};

// State that the parts of a group share; see the head of this file. Made by make_context() (engine_group.cc).
struct GroupContext {
  uint64_t id = 0;
  // the group's index in the engine's table, which WriteToken carries
  uint32_t group_index = 0;
  std::string group_class;
  std::optional<collectives::Algorithm> algorithm;  // configured; none: "auto"
  // The memory shared with the ranks of this node. This object holds a view; EngineGroup::memory_ keeps
  // it mapped.
  ipc::Segment segment;
  // how ranks sit on nodes, the same on all nodes
  ipc::Order order{{0}, 1};
  // by node; entry `me` is this node. An entry changes when that node's daemon is replaced.
  std::vector<NodeInfo> nodes;
  // this node's number in the group
  uint32_t me = 0;
  // global rank by local index
  std::vector<uint32_t> local_ranks;
  std::vector<GroupPeer> peers;  // by node; peers[me] is unused
  // memory of local processes that calls use in place
  DirectMemory direct;
  // of the engine; owned by EngineGroup
  GroupServices* services = nullptr;
  // Fails the group here and on all nodes. `rank` is the rank that caused it; -1: none is known.
  std::function<void(Code, int32_t rank, const std::string&)> fail;

  // True if the group has failed. The failure stands in the segment, where ranks write theirs as well,
  // and where a rank may overwrite it. So a failure that this node has seen once holds, whatever the
  // segment says later.
  bool failed() const {
    failed_ = failed_ || segment.failed();
    return failed_;
  }
  // The failure, or OK. kInternal if a rank has destroyed the entry in the segment.
  Status failure() const {
    Status told = segment.failure();
    if (!told.is_ok() || !failed()) return told;
    return {Code::kInternal, "a rank wrote over what the group has failed with"};
  }
  // The rank that the failure names; -1: none.
  int32_t failed_rank() const { return segment.failed_rank(); }
  // Records a failure and wakes all local ranks. False: the group had failed before, and this reason is
  // dropped.
  bool set_failure(Code code, int32_t rank, const std::string& text) {
    if (failed()) return false;
    // If segment.fail() is too late, a rank has just written its own reason there: the group fails with that.
    (void)segment.fail(code, rank, text);
    failed_ = true;
    return true;
  }

  const ipc::Layout& layout() const { return segment.layout(); }
  // Whether the group has such a rank, and on that node. Messages of other nodes may name any number.
  bool is_on(uint32_t rank, uint32_t node) const {
    return rank < layout().ranks && order.node_of_rank[rank] == node;
  }
  // Sends a message on the link in use. Dropped if there is none: what a node must know is sent again
  // when it has a link (EngineGroup::on_link_up(), on_resume()).
  void send(uint32_t node, const EngineMessage& note) {
    if (peers[node].link != nullptr) (void)peers[node].link->send(encode(note));
  }
  // To all other nodes.
  void send_all(const EngineMessage& note) {
    for (uint32_t node = 0; node < peers.size(); ++node) {
      if (node != me) send(node, note);
    }
  }
  // Writes into the memory of the node over the link in use. Skipped without a link and in a group that
  // has failed, as nobody reads the data. A write that the link refuses is dropped too: the link is
  // ending, and its end reports to the group.
  void write(uint32_t node, const transport::WriteRequest& request) {
    GroupPeer& peer = peers[node];
    if (failed() || peer.link == nullptr || !peer.link->write(request).is_ok()) return;
    ++peer.writes_in_flight;
    ++peer.writes;
    peer.last_write = peer.link->written();
  }
  // The same over a link that may be an old one: the key of a region belongs to the backend of that
  // link. No effect if the group has no such link any more.
  void write_over(uint32_t node, const transport::Link& link, const transport::WriteRequest& request) {
    if (&link == peers[node].link) return write(node, request);
    for (GroupPeer::OldLink& other : peers[node].old) {
      if (other.link != &link || failed() || !other.link->write(request).is_ok()) continue;
      ++other.writes_in_flight;
      other.last_write = other.link->written();
    }
  }
  // The links on which something that this node wrote has not arrived yet. `writes_in_flight` is no
  // answer to that: a small write counts as sent as soon as it is copied.
  std::vector<transport::Link*> links_with_writes() const {
    std::vector<transport::Link*> links;
    for (const GroupPeer& peer : peers) {
      if (peer.link != nullptr && !peer.link->arrived(peer.last_write)) links.push_back(peer.link);
      for (const GroupPeer::OldLink& other : peer.old) {
        if (!other.arrived()) links.push_back(other.link);
      }
    }
    return links;
  }
  // Writes whose on_sent() is still to come, on all links of all nodes.
  uint32_t writes_in_flight() const {
    uint32_t sum = 0;
    for (const GroupPeer& peer : peers) {
      sum += peer.writes_in_flight;
      for (const GroupPeer::OldLink& other : peer.old) sum += other.writes_in_flight;
    }
    return sum;
  }
  // "group 1a2b3c4d (class dp)": how logs and failures name the group.
  std::string name() const;

 private:
  // failed() has seen the failure once.
  mutable bool failed_ = false;
};

}  // namespace hdt::daemon
