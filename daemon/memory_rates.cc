#include "daemon/memory_rates.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "collectives/kernels.h"

namespace hdt::daemon {

namespace {

constexpr size_t kElements = size_t{64} << 10;  // half a piece
constexpr size_t kBytes = kElements * sizeof(float);
constexpr int kRounds = 4;  // the first one touches the pages

// Bytes per second of the fastest round.
template <typename Work>
uint64_t rate_of(const Work& work) {
  int64_t fastest_ns = INT64_MAX;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t started_ns = now_ns();
    work();
    fastest_ns = std::min(fastest_ns, std::max<int64_t>(1, now_ns() - started_ns));
  }
  return kBytes * static_cast<uint64_t>(kNsPerSecond) / static_cast<uint64_t>(fastest_ns);
}

}  // namespace

session::MemoryRates measure_memory() {
  std::vector<float> first(kElements, 1);
  std::vector<float> second(kElements, 2);
  std::vector<float> result(kElements);
  session::MemoryRates rates;
  rates.copy_bytes_s = rate_of([&] { std::memcpy(result.data(), first.data(), kBytes); });
  rates.reduce_bytes_s = rate_of([&] {
    const std::array<const void*, 2> sources = {first.data(), second.data()};
    const std::array<void*, 1> destinations = {result.data()};
    collectives::reduce(collectives::DataType::kFloat32, collectives::ReduceOp::kSum, sources, destinations,
                        kElements);
  });
  return rates;
}

}  // namespace hdt::daemon
