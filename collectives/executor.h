// executor.h: runs one schedule of one piece on real memory, driven by events. It never blocks and never
// waits: the owner (the daemon's engine, or a test) calls it when something happened.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/schedule.h"

namespace hdt::collectives {

// How many steps of a schedule the executor looks at, from the first that is not complete.
inline constexpr size_t kStepWindow = 32;

// Moves the bytes that the executor wants moved; the engine implements it over links, tests with plain
// copies.
class Port {
 public:
  virtual ~Port() = default;
  // Delivers [data, data + bytes) into area `to` of `peer`'s slot at byte `offset`, then tells the peer's
  // executor on_arrived(me, tag). True: `data` may change at once, as it has been copied. Else on_sent(step)
  // is to be called when it may; never from inside this call. bytes == 0 (barrier): nothing is placed, but
  // on_arrived and on_sent follow all the same.
  virtual bool write(int peer, uint32_t tag, const void* data, size_t bytes, Area to, uint64_t offset,
                     size_t step) = 0;
};

// Areas may lie in blocks: element i of such an area is element starts[i / elements] + i % elements from its
// base. Only for schedules whose steps stay within a block.
struct BlockLayout {
  uint64_t elements = 0;
  std::vector<uint64_t> starts;
};

// kInput and kOutput may be the same memory (an operation in place) where the schedule reads no element of
// kInput after it was written as kOutput: a ring, or halving-doubling between two nodes.
struct SlotMemory {
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
  const BlockLayout* input_blocks = nullptr;  // null: contiguous
  const BlockLayout* output_blocks = nullptr;
};

// Small enough for the nearest cache.
inline constexpr size_t kSpareBytes = 16384;

// How far a schedule has come, where another process can go on with it: all zero at the beginning. Steps are
// complete for others only when they are so here; what is not can be run again.
struct Progress {
  // Bits 0-31: steps below are complete; bit 32 + i: the one that many steps later is, too. One word, never
  // half written.
  std::atomic<uint64_t> complete;
  // A step that overwrites what it reads, as areas are the same memory, cannot be run again. It goes block by
  // block, each through `spare`. Bits 32-63: step + 1; bits 1-31: its blocks below are in place; bit 0: the
  // next one is in `spare`.
  std::atomic<uint64_t> overwriting;
  alignas(64) std::byte spare[kSpareBytes];
};

class Executor {
 public:
  // Memory, port and progress must outlive the executor. Nothing happens before the first advance(). With
  // `progress` it goes on from there; null: it is kept nowhere.
  Executor(std::unique_ptr<Schedule> schedule, DataType type, ReduceOp op, SlotMemory memory, Port& port,
           Progress* progress = nullptr);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // The payload `tag` (counted from 0 per peer) of `peer` has landed. May come before the step is reached, in
  // any order; a tag that the schedule does not have is ignored.
  void on_arrived(int peer, uint32_t tag);
  // The write of step `step` has left the memory.
  void on_sent(size_t step);
  // The way to the peer was lost and is there again: what is under way to it is written again, but for the
  // tags that the peer has.
  void write_again(int peer, const std::function<bool(uint32_t tag)>& has);
  // Starts and completes every step that can be.
  void advance();
  // Every step is complete: the result is in place, and every write has been reported sent.
  bool done() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hdt::collectives
