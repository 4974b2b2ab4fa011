// slot_stages.h: the three things a rank does for a piece of a call in the node's slots (ipc/segment.h), in a
// group of several nodes: copy its contribution in, combine its share of all local contributions, copy its
// result out.
#pragma once

#include "libclient/common/node_access.h"
#include "libclient/common/slot_piece.h"

namespace hdt::client {

void stage(const NodeAccess& access, const SlotPiece& piece);
// Nothing to do where nothing is combined, or this rank is alone on its node.
void combine(const NodeAccess& access, const SlotPiece& piece);
void take(const NodeAccess& access, const SlotPiece& piece);

}  // namespace hdt::client
