// slot_stages.h: the three things that a rank does for a chunk of a call in the node's slots
// (ipc/segment.h), in a group of several nodes: copy its contribution in, combine its share of all local
// contributions, copy its result out. The InternodeQueue decides when each may be called; they check
// nothing and do not wait.
#pragma once

#include "libclient/common/node_access.h"
#include "libclient/common/slot_chunk.h"

namespace hdt::client {

// Copy in. Needs a free slot, and a contribution: ipc::BufferUse::kStaged.
void copy_in(const NodeAccess& access, const SlotChunk& chunk);
// Reduce: this rank's share, from the copy-in areas of all local ranks into the slot's input. Nothing to
// do if nothing is combined, or if this rank is alone on its node. Needs that all local ranks have
// staged.
void reduce(const NodeAccess& access, const SlotChunk& chunk);
// Copy out: this rank's result, from the slot's output. Needs that the daemon has exchanged the chunk, and
// that the rank takes the result from there: ipc::BufferUse::kCopiedOut.
void copy_out(const NodeAccess& access, const SlotChunk& chunk);

}  // namespace hdt::client
