// shared_allocator.cc: torch's interface of an allocator; the work is done by SharedPool. See
// shared_allocator.h.
#include "shared_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <torch/csrc/api/include/torch/version.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>

#include "hdt/hdt.h"

namespace hdt_torch {

namespace {

// Why the last hdtMemAlloc of this thread failed.
thread_local std::string refusal;

void* allocate_slab(size_t bytes) {
  void* memory = nullptr;
  const hdtResult_t result = hdtMemAlloc(&memory, bytes);
  if (result != HDT_SUCCESS) refusal = hdtGetLastError();
  return memory;
}

// libhdt knows the slab, as allocate_slab() gave it, so it refuses only in a forked copy, which frees
// nothing.
void free_slab(void* memory) { (void)hdtMemFree(memory); }

class SharedAllocator final : public c10::Allocator {
 public:
  SharedAllocator(c10::Allocator& former, size_t min_bytes)
      : former_(former), pool_({allocate_slab, free_slab}), pid_(::getpid()), min_bytes_(min_bytes) {}

  // The block's own deleter goes with it: torch frees it by that, even if another allocator is set later.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
  c10::DataPtr allocate(size_t bytes) override { return get(bytes); }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
#else
  c10::DataPtr allocate(size_t bytes) const override { return get(bytes); }
#endif
  // Null: blocks have different deleters.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void set_min_bytes(size_t bytes) { min_bytes_.store(bytes, std::memory_order_relaxed); }
  SharedMemoryFigures figures() const {
    return {pool_.figures(), min_bytes_.load(std::memory_order_relaxed),
            fallbacks_.load(std::memory_order_relaxed), fallback_bytes_.load(std::memory_order_relaxed)};
  }

 private:
  // In a forked copy another thread of the parent may have held the pool's lock.
  bool forked() const { return ::getpid() != pid_; }
  c10::DataPtr get(size_t bytes) const;
  static void free_block(void* block);

  c10::Allocator& former_;
  mutable SharedPool pool_;
  const pid_t pid_;
  std::atomic<size_t> min_bytes_;
  mutable std::atomic<size_t> fallbacks_{0};
  mutable std::atomic<size_t> fallback_bytes_{0};
};

// Never destroyed, as tensors may outlive the program's statics. Set once.
std::atomic<SharedAllocator*> installed{nullptr};

c10::DataPtr SharedAllocator::get(size_t bytes) const {
  if (bytes < min_bytes_.load(std::memory_order_relaxed) || forked()) return former_.allocate(bytes);
  void* const block = pool_.allocate(bytes);
  if (block == nullptr) {
    fallbacks_.fetch_add(1, std::memory_order_relaxed);
    fallback_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    TORCH_WARN_ONCE("hdt: no shared memory for a tensor of ", bytes, " bytes: ", refusal,
                    ". It gets ordinary memory, and is copied by collectives; "
                    "hdt_torch.shared_memory()['fallbacks'] counts such tensors.");
    return former_.allocate(bytes);
  }
  c10::profiledCPUMemoryReporter().New(block, bytes);
  return {block, block, &free_block, c10::Device(c10::DeviceType::CPU)};
}

void SharedAllocator::free_block(void* block) {
  SharedAllocator& mine = *installed.load(std::memory_order_acquire);
  if (mine.forked()) return;
  c10::profiledCPUMemoryReporter().Delete(block);
  mine.pool_.free(block);
}

}  // namespace

void use_shared_memory(size_t min_bytes) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (SharedAllocator* const there = installed.load(std::memory_order_acquire)) {
    there->set_min_bytes(min_bytes);
    return;
  }
  auto* const made = new SharedAllocator(*c10::GetCPUAllocator(), min_bytes);
  installed.store(made, std::memory_order_release);
  // The highest priority: libraries that set one at their own start do not replace it.
  c10::SetCPUAllocator(made, /*priority=*/100);
}

SharedMemoryFigures shared_memory_figures() {
  const SharedAllocator* const there = installed.load(std::memory_order_acquire);
  return there == nullptr ? SharedMemoryFigures{} : there->figures();
}

}  // namespace hdt_torch
