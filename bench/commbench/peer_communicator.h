// peer_communicator.h: what all engines besides HDT have in common: the ranks of HDT's group, which also
// carries the benchmark's bookkeeping, and ordinary memory.
#pragma once

#include "bench/commbench/communicator.h"

namespace hdt::bench {

// Page-aligned ordinary memory. kSystem if there is none.
Result<Memory> allocate_host_memory(size_t bytes);

// An IPv4 address of this rank's machine that the other ranks can reach: the first one of
// $HDT_NICS_ADDRESSES; otherwise loopback if all ranks are on one node; otherwise that of the host's
// name.
Result<std::string> reachable_address(bool one_node);

// True if all ranks of the group are on one node.
bool on_one_node(const Communicator& group);

// Base of the peers' communicators. `group` must outlive it.
class PeerCommunicator : public Communicator {
 public:
  explicit PeerCommunicator(Communicator& group) : group_(group) {}

  int rank() const override { return group_.rank(); }
  int ranks() const override { return group_.ranks(); }
  int node_of(int rank) const override { return group_.node_of(rank); }
  Status gather_all(const void* send, size_t bytes, void* recv) override {
    return group_.gather_all(send, bytes, recv);
  }
  Result<Memory> allocate(size_t bytes) override { return allocate_host_memory(bytes); }

 protected:
  // Whether the call is in place, as hdt.h defines that for each collective. The pointers tell.
  bool in_place(const Call& call) const;

  Communicator& group_;
};

}  // namespace hdt::bench
