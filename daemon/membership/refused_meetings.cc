// refused_meetings.cc: a map with an age limit. See refused_meetings.h.
#include "daemon/membership/refused_meetings.h"

#include <algorithm>

namespace hdt::daemon {

namespace {

// Ranks of one job start within this time of each other, or not at all.
constexpr int64_t kKeepNs = 60 * kNsPerSecond;
constexpr size_t kMaxRefusals = 1'024;

}  // namespace

// The oldest one makes room, since its ranks are the least likely to come.
void RefusedMeetings::keep(Refusals& refusals, const ipc::GroupKey& key, Refusal refusal) {
  const int64_t now = refusal.at_ns;
  std::erase_if(refusals, [now](const auto& entry) { return now - entry.second.at_ns > kKeepNs; });
  // Keys come from processes, so their number is bounded.
  if (refusals.size() >= kMaxRefusals) {
    refusals.erase(std::min_element(refusals.begin(), refusals.end(), [](const auto& a, const auto& b) {
      return a.second.at_ns < b.second.at_ns;
    }));
  }
  refusals.insert_or_assign(key, std::move(refusal));
}

void RefusedMeetings::remember(const ipc::GroupKey& key, const Status& why) {
  keep(refusals_, key, {why, now_ns()});
}

void RefusedMeetings::remember_once(const ipc::GroupKey& key, const Status& why,
                                    std::set<uint32_t> informed) {
  keep(once_, key, {why, now_ns(), std::move(informed)});
}

std::optional<Status> RefusedMeetings::find_once(const ipc::GroupKey& key, uint32_t rank) {
  const auto found = once_.find(key);
  if (found == once_.end()) return std::nullopt;
  if (now_ns() - found->second.at_ns <= kKeepNs && found->second.informed.insert(rank).second)
    return found->second.why;
  once_.erase(found);
  return std::nullopt;
}

// The age decides: a process that started after the refusal belongs to another attempt, which may use the
// same key.
std::optional<Status> RefusedMeetings::find(const ipc::GroupKey& key, int64_t process_age_ms) const {
  const auto found = refusals_.find(key);
  if (found == refusals_.end()) return std::nullopt;
  const int64_t passed_ns = now_ns() - found->second.at_ns;
  // A process that is younger than the refusal was started after it: another run of the job.
  if (passed_ns > kKeepNs || process_age_ms < passed_ns / kNsPerMs) return std::nullopt;
  return found->second.why;
}

}  // namespace hdt::daemon
