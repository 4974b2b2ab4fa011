// staged_call.h: one call of a group of one node, piece by piece through the node's slots (ipc/segment.h).
// Three cursors walk over the pieces, so that their stages overlap:
//   stage    copy in what others combine  (needs: the slot is free)
//   combine  a share of the piece         (needs: all ranks have staged)
//   take     copy out the other shares    (needs: all have combined)
#pragma once

#include <cstdint>

#include "libclient/common/node_access.h"
#include "libclient/intranode/node_stages.h"

namespace hdt::client {

class StagedCall {
 public:
  explicit StagedCall(const NodeAccess& access) : access_(access) {}

  void begin(const session::Call& call, const std::byte* send, std::byte* recv);
  // True if anything was done.
  bool progress();
  bool done() const { return take_ == end_; }

 private:
  SlotPiece piece(uint64_t number) const;
  bool stage_one();
  bool combine_one();
  bool take_one();

  const NodeAccess& access_;
  session::Call call_;
  const std::byte* send_ = nullptr;
  std::byte* recv_ = nullptr;
  uint64_t first_ = 0, end_ = 0;  // pieces of this call, numbered through the life of the group
  uint64_t stage_ = 0, combine_ = 0, take_ = 0;
};

}  // namespace hdt::client
