// Both rates are those of large calls: sources and destinations go through memory, not through the caches.
// Blocks are timed one by one, so that a block during which another process ran does not count.
#include "daemon/links/memory_rates.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/median.h"
#include "collectives/kernels.h"

namespace hdt::daemon {

namespace {

// A block is half a chunk of a call (256 KiB). There are so many of them (32 MiB in each array) that
// they are in no cache, as users' buffers are not.
constexpr size_t kElements = size_t{64} << 10;
constexpr size_t kBytes = kElements * sizeof(float);
#if defined(__SANITIZE_THREAD__)
// The sanitizer keeps four bytes for each: all of that would be touched, in each daemon of each test.
constexpr size_t kBlocks = 8;
#else
constexpr size_t kBlocks = 128;
#endif

// Bytes per second of the median block, since other processes may run in between.
template <typename Work>
uint64_t rate_of(const Work& work) {
  std::vector<double> took_ns;
  for (size_t block = 0; block < kBlocks; ++block) {
    const int64_t started_ns = now_ns();
    work(block * kElements);
    took_ns.push_back(static_cast<double>(now_ns() - started_ns));
  }
  return static_cast<uint64_t>(kBytes * kNsPerSecond / std::max(1.0, median(took_ns)));
}

}  // namespace

// Blocks the caller for the time of the measurement, some 40 ms, and takes 64 MiB meanwhile. One thread
// measures: an engine has no more.
ipc::MemoryRates measure_memory() {
  // Written once, so that no page is touched for the first time while it is measured.
  std::vector<float> first(kBlocks * kElements, 1);
  std::vector<float> second(kBlocks * kElements, 2);
  ipc::MemoryRates rates;
  rates.copy_bytes_s = rate_of([&](size_t at) { std::memcpy(&second[at], &first[at], kBytes); });
  // As in a call: one operand has landed a moment before, and is in a cache; the other is the user's.
  const std::vector<float> landed(kElements, 3);
  rates.reduce_bytes_s = rate_of([&](size_t at) {
    const std::array<const void*, 2> sources = {landed.data(), &first[at]};
    const std::array<void*, 1> destinations = {&first[at]};
    collectives::reduce(collectives::DataType::kFloat32, collectives::ReduceOp::kSum, sources, destinations,
                        kElements);
  });
  return rates;
}

}  // namespace hdt::daemon
