// shared_pool_test.cc: blocks do not overlap, the source gets back what it gave, and slabs are few.
#include "bindings/torch/src/shared_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace hdt_torch {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Memory that nothing is written to costs nothing, so slabs may be large. It has at most `limit` bytes.
class Source {
 public:
  explicit Source(size_t limit = SIZE_MAX) : limit_(limit) {}
  ~Source() { EXPECT_EQ(slabs_.size(), 0U) << "slabs that were not given back"; }
  MemorySource memory() {
    return {[this](size_t bytes) -> void* {
              const std::lock_guard lock(mutex_);
              if (bytes > limit_ - held_) return nullptr;
              void* const slab = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
              if (slab == MAP_FAILED) return nullptr;
              slabs_[slab] = bytes;
              held_ += bytes;
              return slab;
            },
            [this](void* slab) {
              const std::lock_guard lock(mutex_);
              const auto found = slabs_.find(slab);
              ASSERT_NE(found, slabs_.end()) << "a slab that the source has not given";
              ::munmap(slab, found->second);
              held_ -= found->second;
              slabs_.erase(found);
            }};
  }
  size_t slabs() const { return slabs_.size(); }
  size_t held() const { return held_; }
  // Whether the bytes are of one slab.
  bool owns(const void* block, size_t bytes) const {
    auto slab = slabs_.upper_bound(const_cast<void*>(block));
    if (slab == slabs_.begin()) return false;
    --slab;
    const auto offset =
        static_cast<size_t>(static_cast<const char*>(block) - static_cast<const char*>(slab->first));
    return offset + bytes <= slab->second;
  }

 private:
  const size_t limit_;
  std::mutex mutex_;
  std::map<void*, size_t> slabs_;
  size_t held_ = 0;
};

struct Block {
  std::byte* start;
  size_t bytes;
  uint64_t mark;
  // A mark of its own at both ends of a block: an overlap changes it. A block has room for both.
  void write() const {
    std::memcpy(start, &mark, sizeof mark);
    std::memcpy(start + bytes - sizeof mark, &mark, sizeof mark);
  }
  bool intact() const {
    return std::memcmp(start, &mark, sizeof mark) == 0 &&
           std::memcmp(start + bytes - sizeof mark, &mark, sizeof mark) == 0;
  }
};

size_t some_size(std::mt19937_64& random) {
  return 2 * sizeof(uint64_t) + (random() % 50 == 0 ? random() % (200 * kMiB) : random() % (4 * kMiB));
}

TEST(SharedPool, BlocksOfRandomSizesDoNotOverlap) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Source source;
  SharedPool pool(source.memory());
  std::map<std::byte*, Block> blocks;
  size_t bytes_in_use = 0;
  const auto pages = [](size_t bytes) { return (bytes + 4095) / 4096 * 4096; };
  for (int step = 0; step < 20'000; ++step) {
    // Phases of growth and of decline.
    const bool grow = random() % 100 < (step / 2'000 % 2 == 0 ? 55U : 45U);
    if (grow || blocks.empty()) {
      const size_t bytes = some_size(random);
      auto* const start = static_cast<std::byte*>(pool.allocate(bytes));
      ASSERT_NE(start, nullptr);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(start) % SharedPool::kPage, 0U);
      ASSERT_TRUE(source.owns(start, bytes));
      const auto [added, is_new] = blocks.emplace(start, Block{start, bytes, random()});
      ASSERT_TRUE(is_new);
      if (added != blocks.begin()) {
        const Block& before = std::prev(added)->second;
        ASSERT_LE(before.start + before.bytes, start);
      }
      const auto next = std::next(added);
      if (next != blocks.end()) {
        ASSERT_LE(start + bytes, next->first);
      }
      added->second.write();
      bytes_in_use += pages(bytes);
    } else {
      auto victim = blocks.begin();
      std::advance(victim, static_cast<ptrdiff_t>(random() % blocks.size()));
      ASSERT_TRUE(victim->second.intact());
      pool.free(victim->first);
      bytes_in_use -= pages(victim->second.bytes);
      blocks.erase(victim);
    }
    const SharedPool::Figures figures = pool.figures();
    ASSERT_EQ(figures.in_use, bytes_in_use);
    ASSERT_EQ(figures.blocks, blocks.size());
    ASSERT_EQ(figures.held, source.held());
    ASSERT_EQ(figures.slabs, source.slabs());
  }
  for (const auto& [start, block] : blocks) {
    EXPECT_TRUE(block.intact());
    pool.free(start);
  }
  EXPECT_EQ(pool.figures().in_use, 0U);
  // Free blocks are joined, so slabs are whole again, and those beyond kKept are given back.
  EXPECT_LE(source.held(), SharedPool::kKept);
}

TEST(SharedPool, ManyBlocksTakeFewSlabs) {
  Source source;
  SharedPool pool(source.memory());
  std::vector<void*> blocks;
  for (int i = 0; i < 5'000; ++i) blocks.push_back(pool.allocate(4 * kMiB));  // 20 GB that nothing touches
  EXPECT_LT(source.slabs(), 100U);
  for (void* const block : blocks) pool.free(block);
  EXPECT_LE(source.held(), SharedPool::kKept);
}

TEST(SharedPool, AFreedBlockIsUsedAgain) {
  Source source;
  SharedPool pool(source.memory());
  void* const large = pool.allocate(32 * kMiB);
  void* const small = pool.allocate(0);
  ASSERT_NE(small, nullptr);
  EXPECT_NE(small, large);
  pool.free(large);
  EXPECT_EQ(pool.allocate(32 * kMiB), large);
  EXPECT_EQ(source.slabs(), 1U);
  pool.free(large);
  pool.free(small);
}

TEST(SharedPool, NullWhereTheSourceHasNoMore) {
  Source source(80 * kMiB);
  SharedPool pool(source.memory());
  void* const first = pool.allocate(60 * kMiB);
  ASSERT_NE(first, nullptr);
  void* const second = pool.allocate(12 * kMiB);  // no slab of the usual size is left
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(source.slabs(), 2U);
  EXPECT_EQ(pool.allocate(12 * kMiB), nullptr);
  EXPECT_EQ(pool.allocate(SIZE_MAX), nullptr);
  EXPECT_EQ(pool.figures().in_use, 72 * kMiB);
  pool.free(second);
  EXPECT_EQ(pool.allocate(12 * kMiB), second);
  pool.free(second);
  pool.free(first);
}

TEST(SharedPool, ThreadsShareIt) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Source source;
  SharedPool pool(source.memory());
  std::atomic<int> torn{0};
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(seed + thread);
      std::vector<Block> mine;
      for (int step = 0; step < 3'000; ++step) {
        if (mine.size() < 20) {
          const size_t bytes = some_size(random);
          mine.push_back({static_cast<std::byte*>(pool.allocate(bytes)), bytes, random()});
          mine.back().write();
          continue;
        }
        std::swap(mine[random() % mine.size()], mine.back());
        torn += mine.back().intact() ? 0 : 1;
        pool.free(mine.back().start);
        mine.pop_back();
      }
      for (const Block& block : mine) {
        torn += block.intact() ? 0 : 1;
        pool.free(block.start);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(pool.figures().blocks, 0U);
  EXPECT_EQ(pool.figures().in_use, 0U);
}

}  // namespace
}  // namespace hdt_torch
