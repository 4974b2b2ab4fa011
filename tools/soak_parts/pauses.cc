// pauses.cc: compares with a running median. The median does not move when a few operations are long, so
// a pause does not hide the next one.
#include "tools/soak_parts/pauses.h"

#include <algorithm>
#include <cstdio>

#include "base/clock.h"

namespace hdt::soak {

namespace {
// The length of a pause, and the number of operations that must be known before any is one.
constexpr int64_t kNoticedNs = 3 * kNsPerMs;
constexpr uint64_t kLeastKnown = 5;
}  // namespace

void Pauses::add(const std::string& operation, int64_t begin_ns, int64_t end_ns) {
  History& history = histories_[operation];
  const int64_t took = end_ns - begin_ns;
  if (history.count >= kLeastKnown) {
    auto sorted = history.durations;
    const auto last = sorted.begin() + static_cast<std::ptrdiff_t>(std::min<uint64_t>(history.count, kKept));
    const auto median = sorted.begin() + (last - sorted.begin()) / 2;
    std::nth_element(sorted.begin(), median, last);
    // tools/soak counts the pause for the latest fault before its end.
    if (took - *median > kNoticedNs) {
      std::printf("pause %s %lld %lld %lld\n", operation.c_str(), static_cast<long long>(begin_ns),
                  static_cast<long long>(end_ns), static_cast<long long>(took - *median));
    }
  }
  history.durations[history.count++ % kKept] = took;
}

}  // namespace hdt::soak
