// shared_pool.cc: best fit, and joining of neighbours. See shared_pool.h.
#include "shared_pool.h"

#include <algorithm>
#include <iterator>

namespace hdt_torch {

SharedPool::~SharedPool() {
  for (const auto& [start, range] : ranges_) {
    if (start == range.slab) source_.free(start);
  }
}

// Steps that need memory come first, so that an exception changes nothing.
void* SharedPool::allocate(size_t bytes) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  const size_t pages = std::max(kPage, (bytes + kPage - 1) / kPage * kPage);
  const std::lock_guard lock(mutex_);
  auto fit = free_.lower_bound({pages, nullptr});
  if (fit == free_.end()) {
    if (!add_slab(pages)) return nullptr;
    fit = free_.lower_bound({pages, nullptr});
  }
  std::byte* const start = fit->second;
  Range& range = ranges_.at(start);
  if (range.bytes > pages) {
    std::byte* const rest = start + pages;
    const auto added = free_.emplace(range.bytes - pages, rest).first;
    try {
      ranges_.emplace(rest, Range{range.bytes - pages, range.slab, {}});
    } catch (...) {
      free_.erase(added);
      throw;
    }
    range.bytes = pages;
  }
  range.block = free_.extract(fit);
  figures_.in_use += pages;
  ++figures_.blocks;
  return start;
}

void SharedPool::free(void* block) {
  std::vector<std::byte*> slabs;
  {
    const std::lock_guard lock(mutex_);
    auto found = ranges_.find(static_cast<std::byte*>(block));
    figures_.in_use -= found->second.bytes;
    --figures_.blocks;
    found->second.block.value() = {found->second.bytes, found->first};
    free_.insert(std::move(found->second.block));
    join_next(found);
    if (found != ranges_.begin()) join_next(std::prev(found));
    slabs = surplus();
  }
  // Without the lock: libhdt asks the daemon.
  for (std::byte* const slab : slabs) source_.free(slab);
}

SharedPool::Figures SharedPool::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

// If the source has no more, it is asked again for the needed bytes alone.
bool SharedPool::add_slab(size_t bytes) {
  const size_t grown = std::max(kSlab, figures_.held / 8 / kPage * kPage);
  size_t size = std::max(bytes, grown);
  void* memory = source_.allocate(size);
  if (memory == nullptr && size > bytes) {
    size = bytes;
    memory = source_.allocate(size);
  }
  if (memory == nullptr) return false;
  auto* const start = static_cast<std::byte*>(memory);
  try {
    free_.emplace(size, start);
    ranges_.emplace(start, Range{size, start, {}});
  } catch (...) {
    free_.erase({size, start});
    source_.free(start);
    throw;
  }
  figures_.held += size;
  ++figures_.slabs;
  return true;
}

void SharedPool::join_next(Ranges::iterator range) {
  const auto next = std::next(range);
  if (next == ranges_.end() || range->second.block || next->second.block) return;
  if (next->second.slab != range->second.slab) return;
  auto kept = free_.extract({range->second.bytes, range->first});
  free_.erase({next->second.bytes, next->first});
  range->second.bytes += next->second.bytes;
  kept.value().first = range->second.bytes;
  free_.insert(std::move(kept));
  ranges_.erase(next);
}

// From the largest free range on; a slab is free if one range is all of it. Slabs below kSlab were all that
// the source had, and stay.
std::vector<std::byte*> SharedPool::surplus() {
  std::vector<std::byte*> slabs;
  auto it = free_.end();
  while (it != free_.begin() && figures_.held - figures_.in_use > kKept + figures_.in_use) {
    --it;
    const auto [bytes, start] = *it;
    if (bytes < kSlab) break;
    const auto range = ranges_.find(start);
    const auto next = std::next(range);
    if (range->second.slab != start || (next != ranges_.end() && next->second.slab == start)) continue;
    slabs.push_back(start);
    ranges_.erase(range);
    it = free_.erase(it);
    figures_.held -= bytes;
    --figures_.slabs;
  }
  return slabs;
}

}  // namespace hdt_torch
