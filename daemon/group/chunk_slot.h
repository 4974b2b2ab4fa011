// chunk_slot.h: what a ChunkRunner knows about one slot of the segment. Only the files of ChunkRunner
// include it.
#pragma once

#include <memory>
#include <vector>

#include "daemon/group/chunk_runner.h"

namespace hdt::daemon {

// One slot, and the executor of the chunk (`Chunk`) that is in it. It is the executor's Port: what the
// executor wants to write goes to ChunkRunner::write(). There are Layout::slots of them for the life of
// the group; chunk p uses slot p % slots. Owner: ChunkRunner; the engine's thread.
//
// A slot is free when `executor` is null. It gets the next chunk when that chunk may start and settled()
// holds for the small writes of the last one (ChunkRunner::launch()).
class ChunkRunner::Slot : public collectives::Port {
 public:
  Slot(ChunkRunner& runner, uint32_t index) : runner_(runner), index_(index) {}

  // See Port::write(). True: the journal has a copy, so the executor may overwrite the data at once.
  // False: on_sent() will report it. The token of the write then names this slot and the step.
  bool write(int peer, uint32_t tag, const void* data, size_t bytes, collectives::Area to, uint64_t offset,
             size_t step) override {
    const auto node = static_cast<uint32_t>(peer);
    ipc::SentWrite what{};
    what.chunk = chunk;
    what.offset = offset;
    what.peer = node;
    what.tag = tag;
    // A chunk is smaller than 4 GiB.
    what.bytes = static_cast<uint32_t>(bytes);
    what.to = to;
    return runner_.write(*this, {what,
                                 data,
                                 {runner_.context_.group_index, WriteToken::Kind::kChunk,
                                  static_cast<uint32_t>(step), index_}});
  }

  // the chunk whose executor this is, or was
  uint64_t chunk = 0;
  // a predecessor of this daemon had begun the chunk, so some of its writes may have been made
  bool goes_on = false;
  // null: no chunk is running in the slot
  std::unique_ptr<collectives::Executor> executor;
  // The small writes of the chunk that may not have arrived yet, which is what settled() looks at.
  // `held` is the number of those that still wait for credit. `last_writes` has the last one of each
  // node and link; `link` is null if that link is down, so that nobody can tell. `number` is
  // Link::written() after the write.
  uint32_t held = 0;
  struct LastWrite {
    uint32_t node;
    const transport::Link* link;
    uint64_t number;
  };
  std::vector<LastWrite> last_writes;
  // Where the rank's blocks lie in user buffers that are used in place, if a chunk is not one range of
  // them: an allgather or a reduce-scatter takes a part of every block. SlotMemory points to these.
  collectives::BlockLayout blocks;
  // the output of a reduce-scatter, which is the recvbuf with this node's own block alone
  collectives::BlockLayout result;

 private:
  ChunkRunner& runner_;
  // the slot's number, which its tokens carry
  uint32_t index_;
};

}  // namespace hdt::daemon
