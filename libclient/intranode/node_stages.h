// node_stages.h: the three things a rank does for a piece of a call in a group of one node, in the node's
// slots: copy in what others combine, combine its own share, copy out what others have combined. What a rank
// combines itself it reads from its sendbuf and writes to its recvbuf: only what crosses between ranks goes
// through the slots.
#pragma once

#include "libclient/common/node_access.h"
#include "libclient/common/slot_piece.h"

namespace hdt::client::one_node {

void stage(const NodeAccess& access, const SlotPiece& piece);
void combine(const NodeAccess& access, const SlotPiece& piece);
void take(const NodeAccess& access, const SlotPiece& piece);

}  // namespace hdt::client::one_node
