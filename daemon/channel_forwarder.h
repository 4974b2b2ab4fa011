// channel_forwarder.h: point-to-point between nodes. A rank writes chunks into its outgoing ring; the forwarder writes each
// into the incoming ring on the receiver's node as soon as that has room, and carries the receiver's tail
// back. What a rank has written is delivered even if it leaves the group afterwards.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "daemon/group_context.h"

namespace hdt::daemon {

class ChannelForwarder {
 public:
  explicit ChannelForwarder(GroupContext& context);

  // Looks at the channels that local ranks point out. True if anything was done.
  bool progress();
  void on_arrived(const ChunkFrame& frame);
  void on_sent(const WriteToken& token);
  void on_note(const ChunkCredit& note);
  // Nothing that local ranks have written waits to be carried (towards nodes that are still there).
  bool drained() const;

 private:
  struct Outgoing {
    uint64_t next = 0;         // first chunk not handed to the link
    uint64_t sent = 0;         // chunks below have left the memory
    uint32_t sent_bits = 0;    // bit i: chunk sent + i has left, out of order
    uint64_t remote_tail = 0;  // chunks the receiver has consumed
  };
  struct Incoming {
    uint32_t landed_bits = 0;  // bit i: chunk head + i has landed, out of order
    uint64_t told = 0;         // tail last told to the sender's node
  };

  bool look_at(uint32_t channel);
  bool forward(uint32_t channel);
  bool give_credit(uint32_t channel);
  uint32_t local_of(uint32_t rank) const;

  GroupContext& context_;
  std::unordered_map<uint32_t, Outgoing> outgoing_;
  std::unordered_map<uint32_t, Incoming> incoming_;
};

}  // namespace hdt::daemon
