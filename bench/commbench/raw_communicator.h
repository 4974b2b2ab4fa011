// raw_communicator.h: the bound as an engine. It moves bytes over plain sockets between nodes, or by
// memcpy inside one, without reductions, order or results. --help says what it moves for each
// collective.
#pragma once

#include "bench/commbench/peer_communicator.h"

namespace hdt::bench {

// Bytes that each rank must send to other nodes, and receive from them: what a node must exchange with
// the next one in a ring of `nodes`, divided by its ranks. 0: there is no bound for this collective.
size_t raw_wire_bytes(Collective what, size_t full_bytes, int nodes, int ranks);

// Bytes that each rank of one node must copy: half of its share of the bytes that must be read and
// written.
size_t raw_copy_bytes(Collective what, size_t full_bytes, int ranks);

// All ranks of `group` must call it; it must outlive the result. kInvalidArgument if the nodes have
// different numbers of ranks.
Result<std::unique_ptr<Communicator>> make_raw_communicator(Communicator& group, int64_t timeout_s);

// How the bytes are moved, for people.
std::string raw_version(const Communicator& group);

}  // namespace hdt::bench
