// ring_forwarder.h: point-to-point between nodes. Each pair of ranks on different nodes has a message
// ring (`MessageRing`) on both nodes for each direction. The sending rank writes cells (`CellHeader` and
// payload) into the ring on its node. The forwarder writes each cell into the ring on the receiver's
// node as soon as that has room, and carries the receiver's tail back. The cells of a rank are
// delivered even if the rank departs afterwards.
//
// Room: the receiver's ring has a place for cell i when cell i - slots is consumed there (CellCredit).
// The sender's ring has a place when cell i - slots has arrived, so a cell stays there until it needs
// not be sent again.
//
// Restart (docs/design/restart.md): what has arrived stands in the receiver's segment (MessageRing::landed),
// and what has not is still in the sender's ring. So both ends can find out which cells are to be
// written again.
//
// Owner: EngineGroup; the engine's thread only. Ranks write heads and tails of their own, which are
// foreign.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>

#include "daemon/group/group_context.h"

namespace hdt::daemon {

// See the head of this file. Rings are numbered by Layout::ring_index(); "outgoing" and "incoming"
// are as seen from this node.
class RingForwarder {
 public:
  // `context` must outlive the forwarder.
  explicit RingForwarder(GroupContext& context);

  // Looks at the rings that local ranks have pointed out in their attention rings. True if anything was
  // done.
  bool progress();
  // A cell has landed in the ring of a local rank. A cell without credit fails the group.
  void on_arrived(const CellFrame& frame);
  // A cell has arrived on the other node: its place is free for the sender.
  void on_sent(const WriteToken& token);
  // The receiver has consumed cells: there is room for more. Must name a ring from this node to the node
  // that sent it.
  void on_message(const CellCredit& note);
  // Takes up the rings where a predecessor has left them.
  void go_on();
  // tell_state() sends the node what has come of its ranks' cells. resume() compares what the node has
  // sent of ours (GroupPeer::their_rings), and writes again what has not come.
  void tell_state(uint32_t node);
  void resume(uint32_t node);
  // Tells the node how many cells this local rank, which departs, has written to its ranks. RankDeparted must
  // follow.
  void tell_ends(uint32_t local, uint32_t node);
  // A rank of another node, which departs, has written so many cells. Must name a ring from the node that
  // sent it to this one.
  void on_message(const RingEnded& note);
  // This rank of another node has departed: it makes no more room for cells, and writes no others than it has
  // announced. Local ranks learn that from their rings (MessageRing::ended).
  void on_rank_departed(uint32_t rank);
  // Nothing that local ranks have written waits to be carried to nodes and ranks that are still there.
  // True as well if the other end is unreachable for good.
  bool drained() const;
  // Cells are under way whose arrival the receiver is in no hurry to acknowledge.
  bool awaits_arrivals() const;

 private:
  // A ring from a local rank. `sent` is never above `next`.
  struct Outgoing {
    // the first cell that was not handed to the link
    uint64_t next = 0;
    // cells below have arrived; also published as the ring's tail
    uint64_t sent = 0;
    // bit i: cell sent + i has arrived, out of order
    uint32_t sent_bits = 0;
    // cells below are consumed by the receiver, as it has sent
    uint64_t remote_tail = 0;
  };
  // A ring to a local rank.
  struct Incoming {
    // cells below are consumed, as this node has sent last
    uint64_t told = 0;
  };

  // Forwards or grants for one ring; a number that no such ring has is ignored, as it comes from a rank.
  bool look_at(uint32_t number);
  // Hands cells to the link as far as there are cells and room.
  bool forward(uint32_t number);
  // Sends the sender's node how much the local rank has consumed.
  bool give_credit(uint32_t number);
  // Ends the incoming ring if its writer has departed and all its cells have come.
  void end_if_complete(uint32_t number);
  // The local index of a rank of this node.
  uint32_t local_of(uint32_t rank) const;
  // The node at the other end of the ring.
  uint32_t node_of(uint32_t number) const {
    return context_.order.node_of_rank[number % context_.layout().ranks];
  }

  GroupContext& context_;
  // by ring; entries appear when a ring is first used
  std::unordered_map<uint32_t, Outgoing> outgoing_;
  std::unordered_map<uint32_t, Incoming> incoming_;
  // by incoming ring: how many cells its writer has written in all; rings without cells are missing
  std::unordered_map<uint32_t, uint64_t> ends_;
  // ranks of other nodes that have departed
  std::unordered_set<uint32_t> departed_;
};

}  // namespace hdt::daemon
