// channel_forwarder.h: point-to-point between nodes. A rank writes chunks into its outgoing ring; the
// forwarder writes each into the incoming ring on the receiver's node as soon as that has room, and carries
// the receiver's tail back. What a rank has written is delivered even if it leaves the group afterwards.
//
// Restart (docs/design/restart.md): a chunk stays in the sender's ring until it has arrived; what has arrived
// stands in the receiver's segment. So both ends can find out which chunks are to be written again.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>

#include "daemon/group/group_context.h"

namespace hdt::daemon {

class ChannelForwarder {
 public:
  explicit ChannelForwarder(GroupContext& context);

  // Looks at the channels that local ranks point out. True if anything was done.
  bool progress();
  void on_arrived(const ChunkFrame& frame);
  void on_sent(const WriteToken& token);
  void on_note(const ChunkCredit& note);
  // Goes on where a predecessor has ended.
  void go_on();
  // Says to the node what of its ranks' chunks has come; and does what its word (GroupPeer::their_channels)
  // calls for.
  void tell_state(uint32_t node);
  void resume(uint32_t node);
  // This rank of another node has left: it makes no more room for chunks.
  void on_rank_left(uint32_t rank) { left_.insert(rank); }
  // Nothing that local ranks have written waits to be carried, towards ranks that are still there.
  bool drained() const;
  // Chunks are under way of which the receiver is in no hurry to say that they have arrived.
  bool awaits_arrivals() const;

 private:
  struct Outgoing {
    uint64_t next = 0;         // first chunk not handed to the link
    uint64_t sent = 0;         // chunks below have left the memory
    uint32_t sent_bits = 0;    // bit i: chunk sent + i has left, out of order
    uint64_t remote_tail = 0;  // chunks the receiver has consumed
  };
  struct Incoming {
    uint64_t told = 0;  // tail last told to the sender's node
  };

  bool look_at(uint32_t channel);
  bool forward(uint32_t channel);
  bool give_credit(uint32_t channel);
  uint32_t local_of(uint32_t rank) const;
  uint32_t node_of(uint32_t channel) const {
    return context_.order.node_of_rank[channel % context_.layout().ranks];
  }

  GroupContext& context_;
  std::unordered_map<uint32_t, Outgoing> outgoing_;
  std::unordered_map<uint32_t, Incoming> incoming_;
  std::unordered_set<uint32_t> left_;  // ranks of other nodes
};

}  // namespace hdt::daemon
