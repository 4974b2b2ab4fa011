// shared_pool.h: many blocks of memory out of a few large slabs. Free of torch and of libhdt: where slabs
// come from is the caller's choice, and a test's.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace hdt_torch {

// Where slabs come from.
struct MemorySource {
  // Memory aligned to SharedPool::kPage, or null if there is none.
  std::function<void*(size_t bytes)> allocate;
  std::function<void(void*)> free;
};

// A block is the best fit among the free ranges of all slabs; neighbours that are free become one range.
// Slabs are larger the more there is, so that there are never many: libhdt shares a limited number, and each
// is registered with the daemon and the other ranks. A slab without blocks is kept for the next ones, and
// given back when more is free than kKept and what is in use.
//
// Any thread. free() needs no memory. The pool must outlive its blocks.
class SharedPool {
 public:
  static constexpr size_t kPage = 4096;
  static constexpr size_t kSlab = size_t{64} << 20;
  static constexpr size_t kKept = size_t{256} << 20;

  explicit SharedPool(MemorySource source) : source_(std::move(source)) {}
  // Gives all slabs back.
  ~SharedPool();
  SharedPool(const SharedPool&) = delete;
  SharedPool& operator=(const SharedPool&) = delete;

  // A block of `bytes`, aligned to kPage, of any content. Null: the source has no slab for it.
  void* allocate(size_t bytes);
  // `block` is one of allocate().
  void free(void* block);

  struct Figures {
    size_t in_use = 0;  // bytes of blocks, whole pages
    size_t held = 0;    // bytes of slabs
    size_t blocks = 0;
    size_t slabs = 0;
  };
  Figures figures() const;

 private:
  // Free ranges by size, then by address.
  using Free = std::set<std::pair<size_t, std::byte*>>;
  struct Range {
    size_t bytes = 0;
    std::byte* slab = nullptr;
    // Its place in free_ while it is a block, so that free() needs no memory. Empty: the range is free.
    Free::node_type block;
  };
  using Ranges = std::map<std::byte*, Range>;

  // The lock is held for all of these. A new slab, as one free range, for a block of `bytes`; false: the
  // source has none.
  bool add_slab(size_t bytes);
  // Joins a free range with the one behind it, if that is free and of the same slab.
  void join_next(Ranges::iterator range);
  // Takes free slabs out of the pool while there is too much free memory; the caller gives them back.
  std::vector<std::byte*> surplus();

  const MemorySource source_;
  mutable std::mutex mutex_;
  // Every byte of every slab is in one range.
  Ranges ranges_;
  Free free_;
  Figures figures_;
};

}  // namespace hdt_torch
