// pauses.h: finds operations that took much longer than the same operation usually takes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace hdt::soak {

// The latest durations of each kind of operation.
class Pauses {
 public:
  // Adds an operation, and prints a "pause" line if it took more than 3 ms longer than the median of the
  // latest ones of its kind. Times are nanoseconds of the monotonic clock.
  void add(const std::string& operation, int64_t begin_ns, int64_t end_ns);

 private:
  // An odd number, so that the median is one of them.
  static constexpr size_t kKept = 33;
  // The latest operations of one kind.
  struct History {
    // A ring of nanoseconds; the next one goes to count % kKept.
    std::array<int64_t, kKept> durations{};
    uint64_t count = 0;
  };
  std::map<std::string, History> histories_;
};

}  // namespace hdt::soak
