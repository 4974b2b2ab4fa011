// buffer.h: a message buffer with guard bytes right before and right after its contents, so that a write past
// either end is found.
#pragma once

#include <cstddef>

#include "bench/commbench/communicator.h"

namespace hdt::bench {

class Buffer {
 public:
  static constexpr size_t kGuardBytes = 4096;  // keeps the contents page-aligned in page-aligned memory

  // Room for contents of up to `max_bytes`.
  static Result<Buffer> make(Communicator& communicator, size_t max_bytes);

  std::byte* data() const { return memory_.get() + kGuardBytes; }

  // Contents of `bytes` bytes from now on: every one is set to kUntouched, and the guards are set.
  void reset(size_t bytes);
  void zero();
  // Whole elements of contents in [first, first + count) of which a byte is not kUntouched any more.
  size_t count_touched(size_t first, size_t count, size_t element_bytes) const;
  // Guards (0, 1 or 2) of which a byte has changed.
  size_t count_broken_guards() const;

 private:
  Buffer(Memory memory) : memory_(std::move(memory)) {}

  Memory memory_;
  size_t bytes_ = 0;
};

}  // namespace hdt::bench
