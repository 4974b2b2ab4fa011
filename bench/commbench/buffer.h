// buffer.h: a message buffer with guard bytes directly before and after its contents, so that a write
// past either end is found.
#pragma once

#include <cstddef>

#include "bench/commbench/communicator.h"

namespace hdt::bench {

// One buffer of one rank, in memory of the engine that is measured. It is large enough for the largest
// row, and reset() fits it to each row. Copies share the memory.
class Buffer {
 public:
  // A page, so that the contents are page-aligned if the memory is.
  static constexpr size_t kGuardBytes = 4096;

  // Room for contents of up to `max_bytes` bytes. The error is that of the engine's allocation.
  static Result<Buffer> make(Communicator& communicator, size_t max_bytes);

  // The first byte of the contents.
  std::byte* data() const { return memory_.get() + kGuardBytes; }

  // From now on the contents have `bytes` bytes. Sets each of them to kUntouched, and sets the guards.
  void reset(size_t bytes);
  // Sets the contents to zero; the guards stay.
  void zero();
  // How many of the elements [first, first + count) have a byte that is not kUntouched any more.
  size_t count_touched(size_t first, size_t count, size_t element_bytes) const;
  // How many of the two guards have a byte that has changed.
  size_t count_broken_guards() const;

 private:
  Buffer(Memory memory) : memory_(std::move(memory)) {}

  Memory memory_;
  size_t bytes_ = 0;
};

}  // namespace hdt::bench
