// node_access.h: what the parts of a communicator share: the group's memory on this node, which rank
// this is, and how to reach the others.
#pragma once

#include <cstdint>
#include <functional>

#include "ipc/partition.h"
#include "ipc/segment.h"

namespace hdt::client {

// Owned by the Communicator, which fills it in once when it is made (Communicator::wrap()); constant
// afterwards. The queues and their parts hold references to it. Any thread may read it; what the memory
// holds follows the rules of ipc/segment.h.
struct NodeAccess {
  ipc::Segment segment;
  // Checked when the group was joined: every rank is on a node of the group.
  ipc::Order order{{0}, 1};
  uint32_t rank = 0;
  // The index of this rank among the ranks of this node.
  uint32_t local = 0;
  uint32_t node = 0;
  // Gets the attention of the engine that has the group. Cheap while the engine is awake
  // (Session::ring()). Groups of several nodes.
  std::function<void()> ring_daemon;
  // Fails the group on all nodes, with the rank that the failure is about (-1: none). Any thread. The
  // failure may become visible here only later, as it may go through the daemon (Communicator::fail()).
  std::function<void(Code, int32_t rank, const std::string&)> fail;

  const ipc::Layout& layout() const { return segment.layout(); }
  bool one_node() const { return layout().nodes == 1; }
  ipc::RankState& rank_state() const { return segment.rank_state(local); }
  ipc::Recorder recorder() const { return ipc::Recorder(segment.recording(local)); }
  // An address in the data part, by an offset of Layout.
  std::byte* data(uint64_t offset) const { return segment.data() + offset; }
  // The rank in the group of a local rank of this node.
  uint32_t rank_of(uint32_t local_index) const {
    return order.rank_at[order.first_position[node] + local_index];
  }
  // Counts the buffers of a collective call that has ended. The communicator's lock is held: there is one
  // writer.
  void count_buffers(uint64_t bytes, uint64_t copied) const {
    const auto add = [](std::atomic<uint64_t>& count, uint64_t more) {
      count.store(count.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    };
    add(rank_state().buffer_bytes, bytes);
    add(rank_state().copied_bytes, copied);
  }
  // Rings every other rank of this node, after something was changed for which they may wait. A fence,
  // and a system call only where a rank sleeps (base/doorbell.h).
  void ring_peers() const {
    for (uint32_t i = 0; i < layout().local_ranks; ++i) {
      if (i != local) segment.rank_state(i).doorbell.ring();
    }
  }
};

}  // namespace hdt::client
