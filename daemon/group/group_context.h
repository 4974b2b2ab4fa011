// group_context.h: what the parts of a group in an engine share: identity, memory, peers, and the way to
// them.
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
#include "ipc/plan.h"
#include "ipc/segment.h"
#include "transports/link/link.h"

namespace hdt::daemon {

// A write's token names what it was for, so that its completion needs no look-up table. Groups stay in their
// table slot until none of their writes is under way.
struct WriteToken {
  enum class Kind : uint8_t {
    kPiece = 0,
    kChunk = 1,
    kKept = 2
  };                    // kKept: of a piece, of which nobody waits
  uint32_t group_slot;  // 22 bits
  Kind kind;
  uint32_t number;  // piece: schedule step; chunk: channel
  uint32_t slot;    // piece or chunk index % slots, 4 bits

  uint64_t pack() const {
    return uint64_t{group_slot} << 38 | uint64_t{static_cast<uint8_t>(kind)} << 36 | uint64_t{number} << 4 |
           slot;
  }
  static WriteToken unpack(uint64_t value) {
    return {static_cast<uint32_t>(value >> 38), static_cast<Kind>(value >> 36 & 3),
            static_cast<uint32_t>(value >> 4), static_cast<uint32_t>(value & 15)};
  }
};

// Another node of the group.
struct GroupPeer {
  transport::Link* link = nullptr;  // null before it is up and after it went down
  uint32_t backend = 0;             // the engine's number of the link's
  transport::RegionKey region;
  bool ready = false;    // its hello has come: its memory may be written
  bool has_all = false;  // and it has all that it needs of every node
  bool left = false;     // it will write nothing more to us
  uint32_t writes_in_flight = 0;
  uint64_t writes = 0;      // chunks handed to the link
  uint64_t last_write = 0;  // how many writes the link had with the latest of them
  uint64_t arrivals = 0;    // chunks that came
  int64_t arrived_ns = 0;   // when the last one did
  session::Layout layout{1, 1, 1};
  uint64_t seat_message = 0;  // the link's number of the one that told it of this node's seats; 0: none did
  // Its daemon was lost, or this one has been started again: until both have said what had come (wire.h,
  // Resume), or until nobody waits any more.
  bool away = false;
  Deadline away_until = Deadline::never();
  Status away_why;
  int64_t restart_ms = 0;                               // so long it is waited for; 0: not at all
  std::map<uint64_t, std::set<uint32_t>> their_pieces;  // of ours, what it says to have: tags by piece
  std::vector<ChannelState> their_channels;
  // We have said hello on it, and take it when the peer has, too.
  transport::Link* offered = nullptr;
  uint32_t offered_backend = 0;
  // Links that were taken before, until nothing is under way on them. Nothing orders two links, and nothing
  // needs to: what notes and frames say holds by itself. Only a write to a region must take a link of the
  // backend that its key is of.
  struct OldLink {
    transport::Link* link = nullptr;
    uint32_t writes_in_flight = 0;
    uint64_t last_write = 0;
    bool arrived() const { return link->arrived(last_write); }
  };
  std::vector<OldLink> old;
  std::vector<const transport::Link*> moved;  // links that the peer uses no more for notes

  // It may be written to.
  bool open() const { return link != nullptr && ready && !away; }
  bool uses(const transport::Link& which) const {
    return link == &which || offered == &which ||
           std::any_of(old.begin(), old.end(), [&](const OldLink& other) { return other.link == &which; });
  }
};

struct GroupContext {
  uint64_t id = 0;
  uint32_t group_slot = 0;
  std::string group_class;
  std::optional<collectives::Algorithm> algorithm;  // configured; none: "auto"
  session::Segment segment;
  session::Order order{{0}, 1};
  std::vector<NodeInfo> nodes;
  uint32_t me = 0;
  std::vector<uint32_t> local_ranks;  // rank by local index
  std::vector<GroupPeer> peers;       // by node; peers[me] is unused
  DirectMemory direct;
  // Makes the engine look at the group again, after all that it was told before now; `looks` counts those
  // looks.
  std::function<void()> look_again;
  uint64_t looks = 0;
  // Fails the group here and on all nodes.
  std::function<void(Code, int32_t rank, const std::string&)> fail;

  // The failure of the group. It stands in the segment, where ranks put theirs, and can write over it: what
  // this node has seen once, holds.
  bool failed() const {
    failed_ = failed_ || segment.failed();
    return failed_;
  }
  Status failure() const {
    Status told = segment.failure();
    if (!told.is_ok() || !failed()) return told;
    return {Code::kInternal, "a rank wrote over what the group has failed with"};
  }
  int32_t failed_rank() const { return segment.failed_rank(); }
  // False: it had failed before.
  bool set_failure(Code code, int32_t rank, const std::string& text) {
    if (failed()) return false;
    (void)segment.fail(code, rank, text);  // or a rank is about to say of what the group fails
    failed_ = true;
    return true;
  }

  const session::Layout& layout() const { return segment.layout(); }
  void send(uint32_t node, const Note& note) {
    if (peers[node].link != nullptr) (void)peers[node].link->send(encode(note));
  }
  void send_all(const Note& note) {
    for (uint32_t node = 0; node < peers.size(); ++node) {
      if (node != me) send(node, note);
    }
  }
  // A write into the peer's memory; skipped when the group has failed, as it has when the link is down.
  void write(uint32_t node, const transport::WriteRequest& request) {
    GroupPeer& peer = peers[node];
    if (failed() || peer.link == nullptr || !peer.link->write(request).is_ok()) return;
    ++peer.writes_in_flight;
    ++peer.writes;
    peer.last_write = peer.link->written();
  }
  // The same over a link that may be an old one.
  void write_over(uint32_t node, const transport::Link& link, const transport::WriteRequest& request) {
    if (&link == peers[node].link) return write(node, request);
    for (GroupPeer::OldLink& other : peers[node].old) {
      if (other.link != &link || failed() || !other.link->write(request).is_ok()) continue;
      ++other.writes_in_flight;
      other.last_write = other.link->written();
    }
  }
  // The links on which something that this node wrote has not arrived; small writes count as sent before
  // that.
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
  uint32_t writes_in_flight() const {
    uint32_t sum = 0;
    for (const GroupPeer& peer : peers) {
      sum += peer.writes_in_flight;
      for (const GroupPeer::OldLink& other : peer.old) sum += other.writes_in_flight;
    }
    return sum;
  }
  // "group 1a2b3c4d (class dp)", as logs and messages name it.
  std::string name() const;

 private:
  mutable bool failed_ = false;
};

}  // namespace hdt::daemon
