// path_memory.h: remembers which pairs of addresses let only small packets through (path_test.h). The
// next connection between them begins with small packets, and need not spend 1.2 s to find out again.
// Everything is forgotten after a minute, so that a repaired network is used in full.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace hdt::transport::tcp {

// The limit of a narrow path, as far as it is known. Lengths of IP packets in bytes, headers included.
struct PathLimit {
  uint32_t passes = 0;    // the largest size that arrived; 0: none of the sizes did
  uint32_t vanishes = 0;  // the smallest size that was tried and did not arrive
};

// One for the process: the daemon's control thread and its engines use the same paths. Thread-safe by a
// mutex. Addresses are numeric texts without a port; times are now_ns(). A pair is kept for one
// direction, from the own address to the peer's.
class PathMemory {
 public:
  static PathMemory& of_process();

  // The limit to begin a connection with; nothing: the path is taken as good. Suspicions are no limit.
  std::optional<PathLimit> limit(const std::string& from, const std::string& to, int64_t now);
  // The limit is certain.
  void keep(const std::string& from, const std::string& to, PathLimit limit, int64_t now);
  // An attempt ended before it was certain. Three in a row with the same `passes`, each within a minute
  // of the one before, are kept as certain.
  void suspect(const std::string& from, const std::string& to, PathLimit limit, int64_t now);
  // Large packets have passed: forgets the pair.
  void clear(const std::string& from, const std::string& to);

 private:
  struct Entry {
    PathLimit limit;
    int64_t until_ns = 0;  // forgotten from then on
    int suspicions = 0;    // in a row; 0 once it is certain
    bool certain = false;
  };
  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Entry> entries_;
};

}  // namespace hdt::transport::tcp
