// slot_piece.h: one piece of a call, as a rank moves it through the node's slots.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ipc/plan.h"

namespace hdt::client {

struct SlotPiece {
  session::Call call;
  session::Piece part;  // of the call
  uint64_t number;      // of the piece in the life of the group
  const std::byte* send;
  std::byte* recv;
};

}  // namespace hdt::client
