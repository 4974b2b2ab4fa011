// user_limits.cc: see user_limits.h.
#include "daemon/sessions/user_limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/users.h"

namespace hdt::daemon {

namespace {

// By What, in the order of the enumeration.
struct Name {
  const char* key;   // limits.KEY, and in status
  const char* noun;  // "1024 sessions"
};
constexpr std::array<Name, UserLimits::kWhats> kNames = {{{"sessions", "sessions"},
                                                          {"groups", "groups"},
                                                          {"seats", "ranks in groups"},
                                                          {"making", "groups that its ranks wait for"},
                                                          {"memories", "shared allocations"},
                                                          {"memory_mib", "MiB of shared memory"},
                                                          {"listeners", "meeting places"},
                                                          {"questions", "questions under way"},
                                                          {"unread", "unread answers with descriptors"}}};

// The names of a limit.
// The array is checked by its size only, so its order is that of What.
const Name& name_of(UserLimits::What what) { return kNames[static_cast<size_t>(what)]; }

// How many descriptors this process may have.
// Read once, at the start of the daemon: a later change of the limit does not change what users may have.
int64_t descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return INT64_MAX;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT64_MAX));
}

}  // namespace

// The claim that the target holds is given back first.
UserLimits::Claim& UserLimits::Claim::operator=(Claim&& other) noexcept {
  if (this == &other) return *this;
  release();
  limits_ = std::exchange(other.limits_, nullptr);
  uid_ = other.uid_;
  what_ = other.what_;
  amount_ = other.amount_;
  return *this;
}

// May be called twice; the second call does nothing.
void UserLimits::Claim::release() {
  // The user's entry exists: one that has anything is never forgotten.
  if (limits_ == nullptr) return;
  UserLimits* limits = std::exchange(limits_, nullptr);
  limits->user(uid_).used[static_cast<size_t>(what_)] -= amount_;
  limits->forget_idle(uid_);
}

UserLimits::UserLimits(const Config::Limits& limits, int64_t session_descriptors)
    : limits_{limits.sessions,   limits.groups,    limits.seats,     limits.making, limits.memories,
              limits.memory_mib, limits.listeners, limits.questions, limits.unread},
      lines_per_s_(limits.log_lines_per_s) {
  // One user may have 1/parts of all descriptors in each of these: 1/2 + 1/8 + 1/16 + 1/16 + 1/8 = 7/8.
  // The rest is left for other users and for the daemon itself. The limit is one at least.
  const int64_t all = descriptor_limit();
  const auto fit = [&](What what, int64_t parts, int64_t descriptors) {
    int64_t& limit = limits_[static_cast<size_t>(what)];
    limit = std::min(limit, std::max<int64_t>(1, all / parts / std::max<int64_t>(1, descriptors)));
  };
  fit(What::kSessions, 2, session_descriptors);
  fit(What::kMemories, 8, 1);
  fit(What::kGroups, 16, 1);
  fit(What::kMaking, 16, 1);
  fit(What::kUnread, 8, 1);
}

// Without a number of its own a user is not taken for the daemon's (is_this_user()), so it is limited
// together with all such users.
bool UserLimits::is_exempt(uid_t uid) const { return uid == 0 || is_this_user(uid); }

// Made on first use: anyone on the node may be a user.
UserLimits::User& UserLimits::user(uid_t uid) {
  const auto [entry, is_new] = users_.try_emplace(uid);
  if (is_new) {
    // A full bucket.
    entry->second.lines = static_cast<double>(lines_per_s_);
    entry->second.counted_ns = now_ns();
  }
  return entry->second;
}

// The entry of a user that has nothing is kept for a second after its latest log line, so that ending all
// sessions does not refill the bucket.
void UserLimits::forget_idle(uid_t uid) {
  const auto found = users_.find(uid);
  if (found == users_.end()) return;
  const User& user = found->second;
  const bool has_any =
      std::any_of(user.used.begin(), user.used.end(), [](int64_t used) { return used != 0; });
  if (!has_any && user.unlogged == 0 && now_ns() - user.counted_ns > kNsPerSecond) users_.erase(found);
}

// Exempt users are counted as well; only the comparison with the limit is left out for them.
Result<UserLimits::Claim> UserLimits::claim(uid_t uid, What what, int64_t amount) {
  const auto index = static_cast<size_t>(what);
  User& who = user(uid);
  const int64_t limit = limits_[index];
  // Written so that the sum cannot overflow.
  if (!is_exempt(uid) && (amount > limit || who.used[index] > limit - amount)) {
    return Status(
        Code::kSystem,
        fmt::format("user {} has {} {} at this daemon{}, and may have {} (limits.{})", uid, who.used[index],
                    name_of(what).noun, amount == 1 ? "" : fmt::format(" and asks for {} more", amount),
                    limit, name_of(what).key));
  }
  who.used[index] += amount;
  return Claim(this, uid, what, amount);
}

// A bucket of tokens. After a pause it holds one second's worth, so a user that was silent may
// write so many lines at once.
bool UserLimits::may_log(uid_t uid) {
  if (is_exempt(uid)) return true;
  User& who = user(uid);
  const int64_t now = now_ns();
  const double more = static_cast<double>(now - who.counted_ns) / kNsPerSecond;
  who.lines =
      std::min(static_cast<double>(lines_per_s_), who.lines + more * static_cast<double>(lines_per_s_));
  who.counted_ns = now;
  // The bucket is refilled by the time that has passed, up to its size, and a line takes 1 from it.
  if (who.lines < 1) {
    ++who.unlogged;
    return false;
  }
  who.lines -= 1;
  return true;
}

// Does not make an entry for a user that has none.
int64_t UserLimits::take_unlogged(uid_t uid) {
  const auto found = users_.find(uid);
  return found == users_.end() ? 0 : std::exchange(found->second.unlogged, 0);
}

// Users that have nothing are left out, even while their log lines are counted.
nlohmann::json UserLimits::status(std::optional<uid_t> only) const {
  nlohmann::json each = nlohmann::json::object(), all = nlohmann::json::array();
  for (size_t i = 0; i < kWhats; ++i) each[kNames[i].key] = limits_[i];
  for (const auto& [uid, user] : users_) {
    if (only && *only != uid) continue;
    if (std::all_of(user.used.begin(), user.used.end(), [](int64_t used) { return used == 0; })) continue;
    nlohmann::json one = {{"uid", uid}, {"limited", !is_exempt(uid)}};
    for (size_t i = 0; i < kWhats; ++i) one[kNames[i].key] = user.used[i];
    all.push_back(one);
  }
  return {{"each", each}, {"users", all}};
}

}  // namespace hdt::daemon
