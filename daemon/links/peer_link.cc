// When paths are dialled, and how their failures are reported.
#include "daemon/links/peer_link.h"

#include <algorithm>
#include <utility>

#include "daemon/links/nics.h"

namespace hdt::daemon {

namespace {

// Delays between attempts in ns: doubled from the first to the last. Attempts go on for ever, and often
// enough that a NIC that is back carries traffic within a second.
constexpr int64_t kFirstRetryNs = 20 * kNsPerMs;
constexpr int64_t kLastRetryNs = 400 * kNsPerMs;
// A rail that is lost sooner than this after it came up is flapping. It is held back, twice as long each
// time.
constexpr int64_t kStableNs = 2 * kNsPerSecond;
constexpr int64_t kFirstHoldNs = 100 * kNsPerMs;
constexpr int64_t kLastHoldNs = 30 * kNsPerSecond;
// A path that has led to somebody else is tried again, since addresses change hands, but not as often as
// one that may be about to work.
constexpr int64_t kFirstElsewhereNs = 1 * kNsPerSecond;
// The maximum length of failures(): a part of the 496 bytes of a group's failure (ipc/segment.h).
constexpr size_t kMostFailures = 300;

}  // namespace

// Called whenever a connection of the path has ended. It only sets the time; Dialer::on_time() dials.
void RailPath::schedule(int64_t now, bool to_others) {
  // 1. The path is idle.
  connection = nullptr;
  elsewhere = to_others;
  answered = false;
  int64_t delay = 0;
  // 2. The delay: of a rail that was up by its stability, of an attempt by how many have failed.
  if (std::exchange(up, false)) {
    failures = 0;
    const bool flaps = now - up_ns < kStableNs;
    held_back_ns = flaps ? std::clamp(2 * held_back_ns, kFirstHoldNs, kLastHoldNs) : 0;
    delay = held_back_ns;
  } else if (elsewhere) {
    delay = std::min(kLastHoldNs, kFirstElsewhereNs << std::min<uint32_t>(failures++, 10));
  } else {
    delay = std::min(kLastRetryNs, kFirstRetryNs << std::min<uint32_t>(failures++, 10));
  }
  dial_at = Deadline::at_ns(now + delay);
}

// Also true while a connection of this end is a rail.
bool PeerLink::dialing() const {
  return std::any_of(paths.begin(), paths.end(),
                     [](const RailPath& path) { return path.connection != nullptr; });
}

// Null: the peer has dialled this connection, or its path was given up.
RailPath* PeerLink::path_of(const transport::Connection& connection) {
  const auto found = std::find_if(paths.begin(), paths.end(),
                                  [&](const RailPath& path) { return path.connection == &connection; });
  return found == paths.end() ? nullptr : &*found;
}

// Two answered paths between the same NICs would carry no more than one. A spare path between other NICs is
// needless once a path that is not spare has been answered, as that one is what the pairing wanted.
bool PeerLink::is_needless(const RailPath& path) const {
  return path.spare && std::any_of(paths.begin(), paths.end(), [&](const RailPath& other) {
           const bool same_nics = nic_of(other.pair.ours.nic) == nic_of(path.pair.ours.nic) &&
                                  nic_of(other.pair.theirs.nic) == nic_of(path.pair.theirs.nic);
           return &other != &path && other.answered && (!other.spare || same_nics);
         });
}

// For people. Cut to what fits into the failure of a group, which each rank can read.
std::string PeerLink::failures() const {
  // Paths that failed for one reason are listed together.
  std::vector<std::pair<std::string, std::string>> by_reason;  // the paths of each
  for (const RailPath& path : paths) {
    if (path.failure.empty()) continue;
    const auto known = std::find_if(by_reason.begin(), by_reason.end(),
                                    [&](const auto& entry) { return entry.first == path.failure; });
    if (known == by_reason.end()) {
      by_reason.emplace_back(path.failure, path.pair.describe());
    } else if (!known->second.ends_with(path.pair.describe())) {  // several connections may go over one path
      known->second += ", " + path.pair.describe();
    }
  }
  std::string text;
  for (const auto& [reason, ways] : by_reason) text += (text.empty() ? "" : "; ") + ways + ": " + reason;
  if (text.size() <= kMostFailures) return text;
  return text.substr(0, kMostFailures) + "... (the daemon's log has all)";
}

// The engine sleeps until then, and calls run_link_timers().
Deadline PeerLink::next_time() const {
  Deadline next = Deadline::earlier(ask_at, Deadline::at_ns(link.next_time()));
  next = Deadline::earlier(next, spares_at);
  for (const RailPath& path : paths) next = Deadline::earlier(next, path.dial_at);
  return next;
}

}  // namespace hdt::daemon
