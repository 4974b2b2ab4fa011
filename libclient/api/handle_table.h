// handle_table.h: what the opaque pointers of hdt.h are: no addresses, but a place in a table and how often
// that place has been used. So a handle that has ended, or never was one, is told from a live one without a
// look at memory that is not there any more, and no two handles of a process are the same value.
//
// Any thread. Who uses a handle holds a Ref, two atomic additions: what it stands for lives until the last
// one is gone, also when another thread ends it meanwhile.
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

// `kTag`: 1 to 7, another one for each kind of handle. Lives as long as the process, and so do its places:
// they are used again, so there are as many as there were live handles at a time.
template <typename Body, uintptr_t kTag>
class HandleTable {
  // Bits of `state`: who uses it, two flags, and from kGenerationShift on how often the place has been used.
  static constexpr uint64_t kUsers = (uint64_t{1} << 24) - 1;
  static constexpr uint64_t kLive = uint64_t{1} << 24;
  static constexpr uint64_t kEnding = uint64_t{1} << 25;
  static constexpr int kGenerationShift = 32;
  static constexpr uint64_t kGenerations = uint64_t{1} << 31;
  // Bits of a handle. No pointer to anything but bytes has these lowest ones.
  static constexpr int kTagBits = 3;
  static constexpr int kIndexBits = 26;
  static_assert(kTag > 0 && kTag < 8 && sizeof(uintptr_t) == 8);

  struct alignas(64) Place {
    std::atomic<uint64_t> state{0};
    uint32_t index = 0;
    Place* next_free = nullptr;
    alignas(Body) std::array<std::byte, sizeof(Body)> memory;
    Body* body() { return std::launder(reinterpret_cast<Body*>(memory.data())); }
  };

 public:
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
    // The handle ends: nobody finds it any more. True for one caller.
    bool end() const { return (place_->state.fetch_or(kEnding, std::memory_order_acq_rel) & kEnding) == 0; }

   private:
    HandleTable* table_ = nullptr;
    Place* place_ = nullptr;
  };

  // std::bad_alloc if there is no memory for it.
  uintptr_t make(Body body) {
    Place& place = free_place();
    new (place.memory.data()) Body(std::move(body));
    // Added, not stored: whoever looks for an earlier handle of this place counts itself in and out.
    const uint64_t before = place.state.fetch_or(kLive, std::memory_order_acq_rel);
    return ((before >> kGenerationShift) << (kIndexBits + kTagBits)) | (uintptr_t{place.index} << kTagBits) |
           kTag;
  }

  // Empty: the handle has ended, or never was one.
  Ref find(uintptr_t handle) {
    if ((handle & ((uintptr_t{1} << kTagBits) - 1)) != kTag) return {};
    Place* place = place_at((handle >> kTagBits) & ((uintptr_t{1} << kIndexBits) - 1));
    if (place == nullptr) return {};
    const uint64_t before = place->state.fetch_add(1, std::memory_order_acquire);
    Ref ref(this, place);
    const bool found = before >> kGenerationShift == handle >> (kIndexBits + kTagBits) &&
                       (before & (kLive | kEnding)) == kLive;
    return found ? std::move(ref) : Ref();
  }

 private:
  // The first block has kFirst places, each other one twice as many as the one before.
  static constexpr uint64_t kFirst = 64;
  static constexpr int kBlocks = 20;
  static_assert(kFirst * ((uint64_t{1} << kBlocks) - 1) <= uint64_t{1} << kIndexBits);

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

  void release(Place& place) {
    uint64_t now = place.state.fetch_sub(1, std::memory_order_acq_rel) - 1;
    if ((now & kEnding) == 0 || (now & kUsers) != 0) return;
    // Whoever looks for the ended handle meanwhile counts itself out, too, and then comes here.
    const uint64_t next = ((now >> kGenerationShift) + 1) % kGenerations << kGenerationShift;
    if (!place.state.compare_exchange_strong(now, next, std::memory_order_acq_rel)) return;
    place.body()->~Body();
    const std::lock_guard lock(mutex_);
    place.next_free = std::exchange(free_, &place);
  }

  std::array<std::atomic<Place*>, kBlocks> blocks_{};
  std::mutex mutex_;  // guards the following two
  Place* free_ = nullptr;
  int used_blocks_ = 0;
};

}  // namespace hdt::client
