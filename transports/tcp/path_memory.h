// path_memory.h: which pairs of addresses are known to let only small packets through, so that the next
// connection between them begins with such, and need not find out again. One for the process: a daemon's
// control thread and its engines use the same paths. Thread-safe. What is known is forgotten after a minute,
// so that a repaired network is used in full.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace hdt::transport::tcp {

// Lengths of IP packets.
struct PathLimit {
  uint32_t passes = 0;
  uint32_t vanishes = 0;  // the smallest that was tried in vain
};

class PathMemory {
 public:
  static PathMemory& of_process();

  std::optional<PathLimit> limit(const std::string& from, const std::string& to, int64_t now);
  void keep(const std::string& from, const std::string& to, PathLimit limit, int64_t now);
  // An attempt ended before it was certain. Three in a row that say the same are kept.
  void suspect(const std::string& from, const std::string& to, PathLimit limit, int64_t now);
  // Large packets pass.
  void clear(const std::string& from, const std::string& to);

 private:
  struct Entry {
    PathLimit limit;
    int64_t until_ns = 0;
    int suspicions = 0;
    bool certain = false;
  };
  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Entry> entries_;
};

}  // namespace hdt::transport::tcp
