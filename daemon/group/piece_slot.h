// piece_slot.h: what a PieceRunner knows of one slot of the segment.
#pragma once

#include <memory>
#include <vector>

#include "daemon/group/piece_runner.h"

namespace hdt::daemon {

// A slot's piece under way: the executor's way to the links.
class PieceRunner::Slot : public collectives::Port {
 public:
  Slot(PieceRunner& runner, uint32_t index) : runner_(runner), index_(index) {}

  bool write(int peer, uint32_t tag, const void* data, size_t bytes, collectives::Area to, uint64_t offset,
             size_t step) override {
    const auto node = static_cast<uint32_t>(peer);
    session::SentWrite what{};
    what.piece = piece;
    what.offset = offset;
    what.peer = node;
    what.tag = tag;
    what.bytes = static_cast<uint32_t>(bytes);  // a piece is smaller
    what.to = to;
    return runner_.write(*this, {what,
                                 data,
                                 {runner_.context_.group_slot, WriteToken::Kind::kPiece,
                                  static_cast<uint32_t>(step), index_}});
  }

  uint64_t piece = 0;
  bool goes_on = false;  // a predecessor has begun it
  std::unique_ptr<collectives::Executor> executor;
  // Small writes of the piece that may not have arrived: those that wait, and the last ones by link; null:
  // one that is gone.
  uint32_t held = 0;
  struct LastWrite {
    uint32_t node;
    const transport::Link* link;
    uint64_t number;
  };
  std::vector<LastWrite> last_writes;
  // Of buffers in place, where a piece is not one range of them.
  collectives::BlockLayout blocks;
  collectives::BlockLayout result;  // of a reduce-scatter

 private:
  PieceRunner& runner_;
  uint32_t index_;
};

}  // namespace hdt::daemon
