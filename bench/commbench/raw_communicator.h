// raw_communicator.h: the bound as an engine: bytes moved over plain sockets between nodes, or by memcpy
// inside one, without reductions, order or results. What it moves for each collective is in --help.
#pragma once

#include "bench/commbench/peer_communicator.h"

namespace hdt::bench {

// Bytes that each rank must send to, and receive from, other nodes: what a node must exchange with the next
// in a ring of `nodes`, divided by its ranks.
size_t raw_wire_bytes(Collective what, size_t full_bytes, int nodes, int ranks);

// Bytes that each rank of one node must copy: half of its share of the bytes that must be read and written.
size_t raw_copy_bytes(Collective what, size_t full_bytes, int ranks);

Result<std::unique_ptr<Communicator>> make_raw_communicator(Communicator& group, int64_t timeout_s);

std::string raw_version(const Communicator& group);

}  // namespace hdt::bench
