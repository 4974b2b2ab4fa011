#include "daemon/peer_link.h"

#include <algorithm>

namespace hdt::daemon {

namespace {

// Attempts go on for ever, at least this often, so that a NIC that is back carries traffic within a second.
constexpr int64_t kFirstRetryNs = 20 * kNsPerMs;
constexpr int64_t kLastRetryNs = 400 * kNsPerMs;
// A rail that is lost sooner than this after it came is held back, each time twice as long.
constexpr int64_t kStableNs = 2 * kNsPerSecond;
constexpr int64_t kFirstHoldNs = 100 * kNsPerMs;
constexpr int64_t kLastHoldNs = 30 * kNsPerSecond;

}  // namespace

void RailPath::schedule(int64_t now) {
  connection = nullptr;
  int64_t delay = 0;
  if (std::exchange(up, false)) {
    failures = 0;
    const bool flaps = now - up_ns < kStableNs;
    held_back_ns = flaps ? std::clamp(2 * held_back_ns, kFirstHoldNs, kLastHoldNs) : 0;
    delay = held_back_ns;
  } else {
    delay = std::min(kLastRetryNs, kFirstRetryNs << std::min<uint32_t>(failures++, 10));
  }
  dial_at = Deadline::at_ns(now + delay);
}

bool PeerLink::dialing() const {
  return std::any_of(paths.begin(), paths.end(), [](const RailPath& path) { return path.connection != nullptr; });
}

Deadline PeerLink::next_time() const {
  Deadline next = Deadline::earlier(ask_at, Deadline::at_ns(link.next_time()));
  for (const RailPath& path : paths) next = Deadline::earlier(next, path.dial_at);
  return next;
}

}  // namespace hdt::daemon
