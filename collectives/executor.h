// executor.h: runs one schedule of one chunk on real memory, driven by events. It never blocks and never
// waits: its owner (the daemon's engine, or a test) calls it when something has happened. An executor
// belongs to one thread and takes no lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/schedule.h"

namespace hdt::collectives {

// The number of steps of a schedule that the executor looks at, from the first that is not complete. At
// most 32, because Progress::complete has a bit for each.
inline constexpr size_t kStepWindow = 32;

// Moves the bytes that the executor wants moved. The engine implements it over links, tests with plain
// copies.
class Port {
 public:
  virtual ~Port() = default;
  // Delivers [data, data + bytes) into area `to` of `peer`'s slot at byte `offset`, then reports
  // on_arrived(me, tag) to the peer's executor. Returns true if `data` may change at once, because it
  // has been copied. Otherwise on_sent(step) must be called when it may, but never from inside this
  // call. bytes == 0 (barrier): nothing is placed, but on_arrived and on_sent follow all the same.
  virtual bool write(int peer, uint32_t tag, const void* data, size_t bytes, Area to, uint64_t offset,
                     size_t step) = 0;
};

// An area that lies in blocks, as a user's buffer does of which a chunk takes a part of every rank's
// block: element i of the area is element starts[i / elements] + i % elements from its base. Only for
// schedules whose steps stay within a block, as the range of a step must be contiguous.
struct BlockLayout {
  uint64_t elements = 0;         // of each block
  std::vector<uint64_t> starts;  // in elements from the base
};

// Where the three areas of the chunk are. kInput and kOutput may be the same memory (an operation in place)
// if the schedule reads no element of kInput after it was written as kOutput: a ring, or halving-doubling
// between two nodes. The memory is not owned. An area that the schedule does not use may be null.
struct SlotMemory {
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
  const BlockLayout* input_blocks = nullptr;  // null: contiguous
  const BlockLayout* output_blocks = nullptr;
};

// Size of Progress::spare: small enough for the nearest cache.
inline constexpr size_t kSpareBytes = 16384;

// How far a schedule has come. It lies in memory that survives the daemon (ipc/journal.h), so that a
// successor can go on with the chunk. All zero at the beginning. A step counts as complete for a
// successor only if it does so here; any other step is run again, which is harmless because no step
// overwrites its input.
struct Progress {
  // Bits 0-31: the number of steps at the front that are complete. Bit 32 + i: the step i after them is
  // complete, too. It is one word, so a crash never leaves it half written.
  std::atomic<uint64_t> complete;
  // A step that overwrites what it reads, because areas are the same memory, cannot be run again. It
  // goes block by block, each through `spare`. Bits 32-63: the step's number + 1. Bits 1-31: the number
  // of its blocks that are in place. Bit 0: the next block is in `spare`.
  std::atomic<uint64_t> overwriting;
  alignas(64) std::byte spare[kSpareBytes];  // the result of one block, before it is copied to its place
};

// One chunk's run. The engine makes it when the chunk begins (daemon/group/chunk_runner.h), and calls it
// on its own thread only. After construction it allocates nothing. Events may come early, late, twice or
// invented: each expected payload has one bit, and anything else is ignored.
class Executor {
 public:
  // Memory, port and progress must outlive the executor. Nothing happens before the first advance().
  // With `progress` the executor goes on from there; null: progress is kept nowhere, and the run cannot
  // be resumed.
  Executor(std::unique_ptr<Schedule> schedule, DataType type, ReduceOp op, SlotMemory memory, Port& port,
           Progress* progress = nullptr);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // The payload `tag` (counted from 0 for each peer) of `peer` has landed. This may come before the step is
  // reached, and in any order. A tag that the schedule does not have is ignored. Call advance() afterwards.
  void on_arrived(int peer, uint32_t tag);
  // The write of step `step` has left the memory, which may change now. Call advance() afterwards.
  void on_sent(size_t step);
  // The path to the peer was lost and is there again: every write under way to it is made again, except
  // for the tags that the peer has (`has`), whose steps are complete.
  void write_again(int peer, const std::function<bool(uint32_t tag)>& has);
  // Starts and completes every step that can be. Calls Port::write() from inside.
  void advance();
  // True if every step is complete: the result is in place, and every write has been reported sent, so
  // the slot may be used again on this node.
  bool done() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hdt::collectives
