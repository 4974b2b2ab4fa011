// peer_communicator.h: what all engines beside hdt have in common: the ranks of hdt's group, which also
// carries the benchmark's bookkeeping, and ordinary memory.
#pragma once

#include "bench/commbench/communicator.h"

namespace hdt::bench {

// Page-aligned ordinary memory.
Result<Memory> allocate_host_memory(size_t bytes);

// An address of this rank's machine that the other ranks can reach: the first of $HDT_NICS_ADDRESSES; else
// loopback where all ranks are on one node; else that of the host's name.
Result<std::string> reachable_address(bool one_node);

// True if all ranks of the group are on one node.
bool on_one_node(const Communicator& group);

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
  // In place as hdt.h defines it for each collective; the pointers alone tell.
  bool in_place(const Call& call) const;

  Communicator& group_;
};

}  // namespace hdt::bench
