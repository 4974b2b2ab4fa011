// pauses.h: finds operations that took much longer than the same operation usually does.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace hdt::soak {

class Pauses {
 public:
  // Tells of an operation; prints a line if it took 3 ms longer than the median of its last ones.
  void add(const std::string& operation, int64_t begin_ns, int64_t end_ns);

 private:
  static constexpr size_t kKept = 33;
  struct History {
    std::array<int64_t, kKept> durations{};
    uint64_t count = 0;
  };
  std::map<std::string, History> histories_;
};

}  // namespace hdt::soak
