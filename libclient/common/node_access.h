// node_access.h: what the parts of a communicator share: the group's memory on this node, who this rank is,
// and how to tell the others that something has changed.
#pragma once

#include <cstdint>
#include <functional>

#include "ipc/plan.h"
#include "ipc/segment.h"

namespace hdt::client {

struct NodeAccess {
  session::Segment segment;
  session::Order order{{0}, 1};
  uint32_t rank = 0;
  uint32_t local = 0;  // index among the ranks of this node
  uint32_t node = 0;
  std::function<void()> ring_daemon;
  // Ends the group on all nodes.
  std::function<void(Code, int32_t rank, const std::string&)> fail;

  const session::Layout& layout() const { return segment.layout(); }
  bool one_node() const { return layout().nodes == 1; }
  session::Board& board() const { return segment.board(local); }
  session::Recorder recorder() const { return session::Recorder(segment.recording(local)); }
  std::byte* data(uint64_t offset) const { return segment.data() + offset; }
  uint32_t rank_of(uint32_t local_index) const {
    return order.rank_at[order.first_position[node] + local_index];
  }
  void ring_peers() const {
    for (uint32_t i = 0; i < layout().local_ranks; ++i) {
      if (i != local) segment.board(i).doorbell.ring();
    }
  }
};

}  // namespace hdt::client
