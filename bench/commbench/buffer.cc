// buffer.cc: guarded message buffers.
#include "bench/commbench/buffer.h"

#include <cstring>

namespace hdt::bench {
namespace {

constexpr std::byte kGuard{0xa5};
// As an element of a floating type this is none of the pattern's values. An integer type's value may
// equal it by chance, as integers use their full range.
constexpr std::byte kUntouched{0xcb};

bool all_equal(const std::byte* bytes, size_t count, std::byte value) {
  // All bytes are equal if each is equal to the one before it. memcmp() finds that out at the speed of
  // memory.
  return count == 0 || (*bytes == value && std::memcmp(bytes, bytes + 1, count - 1) == 0);
}

}  // namespace

Result<Buffer> Buffer::make(Communicator& communicator, size_t max_bytes) {
  Result<Memory> memory = communicator.allocate(max_bytes + 2 * kGuardBytes);
  if (!memory.is_ok()) return memory.status();
  return Buffer(memory.take());
}

void Buffer::reset(size_t bytes) {
  bytes_ = bytes;
  std::memset(data() - kGuardBytes, static_cast<int>(kGuard), kGuardBytes);
  std::memset(data(), static_cast<int>(kUntouched), bytes);
  std::memset(data() + bytes, static_cast<int>(kGuard), kGuardBytes);
}

void Buffer::zero() { std::memset(data(), 0, bytes_); }

// Counts whole elements, as the verifier counts wrong ones.
size_t Buffer::count_touched(size_t first, size_t count, size_t element_bytes) const {
  size_t touched = 0;
  for (size_t i = first; i < first + count; ++i) {
    touched += all_equal(data() + i * element_bytes, element_bytes, kUntouched) ? 0 : 1;
  }
  return touched;
}

size_t Buffer::count_broken_guards() const {
  return (all_equal(data() - kGuardBytes, kGuardBytes, kGuard) ? 0 : 1) +
         (all_equal(data() + bytes_, kGuardBytes, kGuard) ? 0 : 1);
}

}  // namespace hdt::bench
