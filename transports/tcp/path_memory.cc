// path_memory.cc: the table of narrow paths; see path_memory.h.
#include "transports/tcp/path_memory.h"

#include "base/clock.h"

namespace hdt::transport::tcp {

namespace {

constexpr int64_t kRememberedNs = 60 * kNsPerSecond;
constexpr int kSuspicionsForCertainty = 3;
// Addresses come from other nodes, so the memory that they can take is bounded; beyond it nothing is
// added.
constexpr size_t kMostPaths = 4096;

}  // namespace

PathMemory& PathMemory::of_process() {
  // It is never destroyed: the threads of an embedded daemon may still use it while static objects are
  // destroyed.
  static PathMemory& memory = *new PathMemory();
  return memory;
}

// Expired entries are erased here and in keep().
std::optional<PathLimit> PathMemory::limit(const std::string& from, const std::string& to, int64_t now) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find({from, to});
  if (found == entries_.end() || !found->second.certain) return std::nullopt;
  if (now < found->second.until_ns) return found->second.limit;
  entries_.erase(found);
  return std::nullopt;
}

void PathMemory::keep(const std::string& from, const std::string& to, PathLimit limit, int64_t now) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const auto& entry) { return now >= entry.second.until_ns; });
  if (entries_.size() >= kMostPaths && !entries_.contains({from, to})) return;
  entries_[{from, to}] = {limit, now + kRememberedNs, 0, true};
}

// keep() takes the mutex itself, so it is called after the block.
void PathMemory::suspect(const std::string& from, const std::string& to, PathLimit limit, int64_t now) {
  int suspicions = 0;
  {
    const std::lock_guard lock(mutex_);
    if (entries_.size() >= kMostPaths && !entries_.contains({from, to})) return;
    Entry& entry = entries_[{from, to}];
    const bool same = entry.limit.passes == limit.passes && now < entry.until_ns;
    suspicions = entry.suspicions = same ? entry.suspicions + 1 : 1;
    entry.limit = limit;
    entry.until_ns = now + kRememberedNs;
    entry.certain = false;
  }
  if (suspicions >= kSuspicionsForCertainty) keep(from, to, limit, now);
}

void PathMemory::clear(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  entries_.erase({from, to});
}

}  // namespace hdt::transport::tcp
