// handle_table.h: what the opaque pointers of hdt.h are. A handle is no address, but the number of a
// place in a table and how often that place has been used. So a handle that has ended, or never was one,
// can be told from a live one without a look at memory that may be gone, and no two handles of a process
// are the same value.
//
// All functions may be called from any thread. A caller that uses a handle holds a Ref, which costs two
// atomic additions. The object behind the handle lives until the last Ref is gone, even if another
// thread ends the handle meanwhile.
//
// A place goes through these states, all in one atomic word:
// 1. Free: neither kLive nor kEnding; the place is in the list of free places.
// 2. Live: make() has put a body there and set kLive. find() succeeds.
// 3. Ending: end() has set kEnding. find() fails; existing Refs go on.
// 4. Free again: the last user has counted the generation up and destroyed the body.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace hdt::client {

// `kTag`: 1 to 7, a different one for each kind of handle, so that a request is never taken for a
// communicator. The table lives as long as the process, and so do its places. Places are used again, so
// there are as many as there were live handles at one time.
template <typename Body, uintptr_t kTag>
class HandleTable {
  // The bits of `state`. 0-23: the number of users (Refs, and callers inside find()). 24 and 25: the two
  // flags. From 32 on: the generation, which is how often the place has been used.
  static constexpr uint64_t kUsers = (uint64_t{1} << 24) - 1;
  static constexpr uint64_t kLive = uint64_t{1} << 24;
  static constexpr uint64_t kEnding = uint64_t{1} << 25;
  static constexpr int kGenerationShift = 32;
  static constexpr uint64_t kGenerations = uint64_t{1} << 31;
  // The bits of a handle, from the lowest: tag, index of the place, generation. A valid pointer to
  // anything but bytes has three zeros there, so a user's pointer that is passed by mistake fails the
  // test of the tag.
  static constexpr int kTagBits = 3;
  static constexpr int kIndexBits = 26;
  static_assert(kTag > 0 && kTag < 8 && sizeof(uintptr_t) == 8);

  // Places of different handles do not share a cache line, as every call writes `state`.
  struct alignas(64) Place {
    std::atomic<uint64_t> state{0};
    // Constant after add_block().
    uint32_t index = 0;
    // The list of free places; guarded by the table's mutex_.
    Place* next_free = nullptr;
    // Holds a Body while the place is live or ending.
    alignas(Body) std::array<std::byte, sizeof(Body)> memory;
    Body* body() { return std::launder(reinterpret_cast<Body*>(memory.data())); }
  };

 public:
  // One use of a live handle. Movable; an empty one is false. The body stays as long as a Ref exists.
  class Ref {
   public:
    Ref() = default;
    Ref(HandleTable* table, Place* place) : table_(table), place_(place) {}
    Ref(Ref&& other) noexcept : table_(other.table_), place_(std::exchange(other.place_, nullptr)) {}
    Ref& operator=(Ref&&) = delete;
    ~Ref() {
      if (place_ != nullptr) table_->release(*place_);
    }
    explicit operator bool() const { return place_ != nullptr; }
    Body* operator->() const { return place_->body(); }
    Body& operator*() const { return *place_->body(); }
    // Ends the handle: nobody finds it any more, and the body is destroyed when the last Ref goes. True
    // for the one caller that ended it, if several try.
    bool end() const { return (place_->state.fetch_or(kEnding, std::memory_order_acq_rel) & kEnding) == 0; }

   private:
    HandleTable* table_ = nullptr;
    Place* place_ = nullptr;
  };

  // Makes a handle for the body. Throws std::bad_alloc if there is no memory, or if some 67 million
  // handles are live.
  uintptr_t make(Body body) {
    Place& place = free_place();
    new (place.memory.data()) Body(std::move(body));
    // A read-modify-write, not a store: a thread that looks for an earlier handle of this place counts
    // itself in and out meanwhile, and its count must not be lost. release: a thread that finds kLive
    // sees the body.
    const uint64_t before = place.state.fetch_or(kLive, std::memory_order_acq_rel);
    return ((before >> kGenerationShift) << (kIndexBits + kTagBits)) | (uintptr_t{place.index} << kTagBits) |
           kTag;
  }

  // Empty: the handle has ended, or never was one. Any value may be passed.
  Ref find(uintptr_t handle) {
    if ((handle & ((uintptr_t{1} << kTagBits) - 1)) != kTag) return {};
    Place* place = place_at((handle >> kTagBits) & ((uintptr_t{1} << kIndexBits) - 1));
    if (place == nullptr) return {};
    // Count in first, then look. Otherwise another thread could destroy the body between the look and
    // the count. If the look fails, the Ref counts itself out again. acquire pairs with the release in
    // make().
    const uint64_t before = place->state.fetch_add(1, std::memory_order_acquire);
    Ref ref(this, place);
    const bool found = before >> kGenerationShift == handle >> (kIndexBits + kTagBits) &&
                       (before & (kLive | kEnding)) == kLive;
    return found ? std::move(ref) : Ref();
  }

 private:
  // Places lie in blocks, which never move: the first has kFirst places, and each other one twice as
  // many as the one before. So a place is found by index without a lock.
  static constexpr uint64_t kFirst = 64;
  static constexpr int kBlocks = 20;
  static_assert(kFirst * ((uint64_t{1} << kBlocks) - 1) <= uint64_t{1} << kIndexBits);

  // Null: no place of that index was ever made. Block b begins at place kFirst * (2^b - 1), so b is the
  // position of the highest bit of index / kFirst + 1. acquire pairs with the release in add_block().
  Place* place_at(uint64_t index) const {
    const int block = std::bit_width(index / kFirst + 1) - 1;
    if (block >= kBlocks) return nullptr;
    Place* places = blocks_[static_cast<size_t>(block)].load(std::memory_order_acquire);
    return places == nullptr ? nullptr : places + (index - kFirst * ((uint64_t{1} << block) - 1));
  }

  Place& free_place() {
    const std::lock_guard lock(mutex_);
    if (free_ == nullptr) add_block();
    return *std::exchange(free_, free_->next_free);
  }

  // mutex_ is held. Blocks are never freed, as a caller may be in place_at() at any time.
  void add_block() {
    if (used_blocks_ == kBlocks) throw std::bad_alloc();
    const uint64_t count = kFirst << used_blocks_;
    const uint64_t first = kFirst * ((uint64_t{1} << used_blocks_) - 1);
    auto* places = new Place[count];
    for (uint64_t i = count; i-- > 0;) {
      places[i].index = static_cast<uint32_t>(first + i);
      places[i].next_free = std::exchange(free_, &places[i]);
    }
    blocks_[static_cast<size_t>(used_blocks_++)].store(places, std::memory_order_release);
  }

  // Counts one user out. The last user of an ending handle frees the place.
  void release(Place& place) {
    uint64_t now = place.state.fetch_sub(1, std::memory_order_acq_rel) - 1;
    if ((now & kEnding) == 0 || (now & kUsers) != 0) return;
    // A thread that looks for the ended handle counts itself in and out, too, and comes here. So several
    // threads may see that they are the last; the exchange lets one of them free the place. The new word
    // has no flags, no users and the next generation: old handles of this place fail from now on.
    const uint64_t next = ((now >> kGenerationShift) + 1) % kGenerations << kGenerationShift;
    if (!place.state.compare_exchange_strong(now, next, std::memory_order_acq_rel)) return;
    place.body()->~Body();
    const std::lock_guard lock(mutex_);
    place.next_free = std::exchange(free_, &place);
  }

  // Null until the block is made.
  std::array<std::atomic<Place*>, kBlocks> blocks_{};
  // Guards the following two, and next_free of all places.
  std::mutex mutex_;  // guards the following two
  Place* free_ = nullptr;
  int used_blocks_ = 0;
};

}  // namespace hdt::client
