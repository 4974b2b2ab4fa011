// node_stages.h: the three things that a rank does for a chunk of a staged call in a group of one node,
// in the node's slots: copy in what others combine, combine its own share, copy out what others have
// combined. A rank reads its own share of its contribution from its sendbuf, and writes its share of the
// result to its recvbuf: only what crosses between ranks goes through the slots. staged_call.h has the
// order in which they may be called; they check nothing and do not wait.
#pragma once

#include "libclient/common/node_access.h"
#include "libclient/common/slot_chunk.h"

namespace hdt::client::one_node {

// Copy in: this rank's contribution to all shares but its own. Needs a free slot.
void copy_in(const NodeAccess& access, const SlotChunk& chunk);
// Reduce: this rank's share of the chunk, from the copy-in areas of all ranks. Needs that all ranks have
// staged. Nothing to do for collectives that combine nothing.
void reduce(const NodeAccess& access, const SlotChunk& chunk);
// Copy out: the shares of the result that other ranks have combined. Needs that all ranks have combined.
void copy_out(const NodeAccess& access, const SlotChunk& chunk);

}  // namespace hdt::client::one_node
