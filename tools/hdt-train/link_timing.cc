// link_timing.cc: ping-pongs and allreduces by message size. All times are medians, so that a few
// disturbed repetitions do not matter.
#include "tools/hdt-train/link_timing.h"

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/median.h"
#include "training/engine/hdt_operation.h"

namespace hdt::tools {
namespace {

using Clock = std::chrono::steady_clock;
using training::status_of;

// The points of the profile's rates.
constexpr std::array<size_t, 6> kMessageBytes = {4096, 32768, 131072, 524288, 2097152, 8388608};
// Half a round trip of so few bytes is the latency.
constexpr size_t kLatencyBytes = 8;
constexpr int kRepetitions = 31;

using Once = std::function<hdtResult_t(size_t bytes)>;

// The median of the seconds that `once` takes, which both ranks run. The barrier before makes them begin
// together.
Result<double> median_seconds(hdtComm_t pair, size_t bytes, const Once& once) {
  std::vector<double> times;
  HDT_RETURN_IF_ERROR(status_of(hdtBarrier(pair, nullptr)));
  for (int i = -2; i < kRepetitions; ++i) {  // two to warm up
    const Clock::time_point begin = Clock::now();
    HDT_RETURN_IF_ERROR(status_of(once(bytes)));
    if (i >= 0) times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return median(std::move(times));
}

// The rate of what a message's time is beyond the latency: latency + bytes / rate is the measured time.
// A message that takes hardly longer than the smallest one would get an absurd rate; it gets the rate of
// its whole time.
double rate_of(double bytes, double seconds, double latency) {
  return bytes / (seconds > 1.05 * latency ? seconds - latency : seconds);
}

}  // namespace

Result<plan::Link> time_link(hdtComm_t pair) {
  int rank = 0;
  HDT_RETURN_IF_ERROR(status_of(hdtCommUserRank(pair, &rank)));
  void* allocated = nullptr;
  HDT_RETURN_IF_ERROR(status_of(hdtMemAlloc(&allocated, kMessageBytes.back())));
  // Memory of hdtMemAlloc, which is sent from and received into without a copy.
  const std::unique_ptr<void, void (*)(void*)> memory(allocated, [](void* pointer) { hdtMemFree(pointer); });
  const Once round_trip = [&](size_t bytes) {
    for (const bool sends : {rank == 0, rank == 1}) {
      const hdtResult_t result = sends ? hdtSend(memory.get(), bytes, HDT_UINT8, 1 - rank, pair, nullptr)
                                       : hdtRecv(memory.get(), bytes, HDT_UINT8, 1 - rank, pair, nullptr);
      if (result != HDT_SUCCESS) return result;
    }
    return HDT_SUCCESS;
  };
  const Once sum = [&](size_t bytes) {
    return hdtAllReduce(memory.get(), memory.get(), bytes / sizeof(float), HDT_FLOAT32, HDT_SUM, pair,
                        nullptr);
  };
  const Result<double> shortest = median_seconds(pair, kLatencyBytes, round_trip);
  if (!shortest.is_ok()) return shortest.status();
  plan::Link link;
  link.latency = shortest.value() / 2;
  for (const size_t bytes : kMessageBytes) {
    const Result<double> message = median_seconds(pair, bytes, round_trip);
    if (!message.is_ok()) return message.status();
    const Result<double> allreduce = median_seconds(pair, bytes, sum);
    if (!allreduce.is_ok()) return allreduce.status();
    const auto size = static_cast<double>(bytes);
    link.bandwidth.emplace_back(size, rate_of(size, message.value() / 2, link.latency));
    // Between two ranks, each hop of a ring carries all bytes once.
    link.allreduce.emplace_back(size, rate_of(size, allreduce.value(), link.latency));
  }
  return link;
}

}  // namespace hdt::tools
