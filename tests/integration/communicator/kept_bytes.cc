// kept_bytes.cc: the thread's pool. Not in the header, as files without a sanitizer use buffers, too.
#include "tests/integration/communicator/kept_bytes.h"

#include <algorithm>
#include <utility>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace hdt::testing {
namespace {

// More buffers than one call has are given back.
constexpr size_t kMostKept = 8;

thread_local std::vector<std::vector<std::byte>> kept;

// The smallest that is large enough, or a new one.
std::vector<std::byte> take(size_t size) {
  auto best = kept.end();
  for (auto memory = kept.begin(); memory != kept.end(); ++memory) {
    if (memory->size() >= size && (best == kept.end() || memory->size() < best->size())) best = memory;
  }
  if (best == kept.end()) return std::vector<std::byte>(size);
  std::swap(*best, kept.back());
  std::vector<std::byte> memory = std::move(kept.back());
  kept.pop_back();
  return memory;
}

}  // namespace

KeptBytes::KeptBytes(size_t size) : size_(size) {
  if (size == 0) return;
  memory_ = take(size);
  ASAN_POISON_MEMORY_REGION(memory_.data(), memory_.size());
  ASAN_UNPOISON_MEMORY_REGION(memory_.data(), size);
}

KeptBytes::~KeptBytes() {
  if (size_ == 0) return;
  ASAN_POISON_MEMORY_REGION(memory_.data(), memory_.size());
  kept.push_back(std::move(memory_));
  if (kept.size() <= kMostKept) return;
  const auto least = std::ranges::min_element(kept, {}, &std::vector<std::byte>::size);
  ASAN_UNPOISON_MEMORY_REGION(least->data(), least->size());
  kept.erase(least);
}

KeptBytes::KeptBytes(KeptBytes&& other) noexcept
    : memory_(std::move(other.memory_)), size_(std::exchange(other.size_, 0)) {}

KeptBytes& KeptBytes::operator=(KeptBytes&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace hdt::testing
