// link_timing.cc: ping-pongs and allreduces by message size. All times are medians, so that a few
// disturbed repetitions do not matter.
#include "tools/hdt-train/link_timing.h"

#include <array>
#include <chrono>
#include <functional>
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

// Throws hdt::Error.
using Once = std::function<void(size_t bytes)>;

// The median of the seconds that `once` takes, which both ranks run. The barrier before makes them begin
// together.
double median_seconds(Communicator& pair, size_t bytes, const Once& once) {
  std::vector<double> times;
  pair.barrier();
  for (int i = -2; i < kRepetitions; ++i) {  // two to warm up
    const Clock::time_point begin = Clock::now();
    once(bytes);
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

Result<plan::Link> time_link(Communicator& pair) {
  plan::Link link;
  const Status timed = status_of([&] {
    const int peer = 1 - pair.rank();
    Memory<std::byte> memory(kMessageBytes.back());
    const Once round_trip = [&](size_t bytes) {
      for (const bool sends : {pair.rank() == 0, pair.rank() == 1}) {
        if (sends) {
          pair.send({memory.data(), bytes}, peer);
        } else {
          pair.recv({memory.data(), bytes}, peer);
        }
      }
    };
    const Once sum = [&](size_t bytes) {
      pair.all_reduce({memory.data(), bytes / sizeof(float), HDT_FLOAT32});
    };
    link.latency = median_seconds(pair, kLatencyBytes, round_trip) / 2;
    for (const size_t bytes : kMessageBytes) {
      const auto size = static_cast<double>(bytes);
      const double message = median_seconds(pair, bytes, round_trip) / 2;
      link.bandwidth.emplace_back(size, rate_of(size, message, link.latency));
      // Between two ranks, each hop of a ring carries all bytes once.
      const double allreduce = median_seconds(pair, bytes, sum);
      link.allreduce.emplace_back(size, rate_of(size, allreduce, link.latency));
    }
  });
  if (!timed.is_ok()) return timed;
  return link;
}

}  // namespace hdt::tools
