// user_limits.h: limits what the processes of one user may have of a daemon at a time. Everything that a
// process can ask for and that lasts is claimed here first and given back by the end of its Claim. So
// nobody takes more than a part of the daemon, and when all sessions of a user have ended everything is
// back.
//
// Root and the daemon's own user have no limits: they could end the daemon anyhow, and the system's
// limits hold for them. Their use is counted all the same.
//
// Owner and thread: Control; the control thread, also for the end of a Claim. Claims must end before the
// UserLimits that gave them.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/config.h"
#include "base/status.h"

namespace hdt::daemon {

class UserLimits {
 public:
  // The things that are limited. For each there is a key in the section [limits] of the configuration.
  enum class What : uint8_t {
    // connections to the socket, greeted or not
    kSessions,
    // groups whose first rank on this node is of the user, from its join until the group has ended
    kGroups,
    // ranks in groups, and ranks that wait to join one
    kSeats,
    // groups that ranks wait for
    kMaking,
    // allocations that are shared with other ranks
    kMemories,
    // their size together, in MiB; an allocation that is shared in several groups counts once
    kMemoryMib,
    // meeting places (HDT_RENDEZVOUS, MASTER_ADDR) at which the daemon listens
    kListeners,
    // questions of hdtctl that are not answered yet
    kQuestions,
    // answers with descriptors that the process has not read: the kernel counts these descriptors as the
    // daemon's
    kUnread,
  };
  static constexpr size_t kWhats = 9;

  // Holds a part of a user's limit until it ends or release() is called. Movable; an empty one holds
  // nothing.
  class Claim {
   public:
    Claim() = default;
    Claim(Claim&& other) noexcept { *this = std::move(other); }
    Claim& operator=(Claim&& other) noexcept;
    ~Claim() { release(); }
    void release();

   private:
    friend class UserLimits;
    Claim(UserLimits* limits, uid_t uid, What what, int64_t amount)
        : limits_(limits), uid_(uid), what_(what), amount_(amount) {}
    UserLimits* limits_ = nullptr;
    uid_t uid_ = 0;
    What what_ = What::kSessions;
    int64_t amount_ = 0;
  };

  // `session_descriptors`: how many descriptors one session takes of this process. If the limits would
  // let one user take more than seven eighths of the descriptors that the process may have, they are
  // lowered.
  UserLimits(const Config::Limits& limits, int64_t session_descriptors);
  UserLimits(const UserLimits&) = delete;
  UserLimits& operator=(const UserLimits&) = delete;

  // Takes `amount` of the user's limit. kSystem: that would be more than the user may have. The text
  // names the limit, the user, the value, and the key that sets it.
  Result<Claim> claim(uid_t uid, What what, int64_t amount = 1);
  // Whether a line on behalf of the user may be written to the log now: at most limits.log_lines_per_s a
  // second on average. Lines that were refused are counted.
  bool may_log(uid_t uid);
  // The number of lines that were refused since the latest call, for the next line that is written.
  int64_t take_unlogged(uid_t uid);
  // Whether the user has no limits.
  bool is_exempt(uid_t uid) const;

  // {"each": {"sessions": 1024, ...}, "users": [{"uid": 1000, "sessions": 3, ...}]}: the limits, and what
  // users have. `only`: this user alone; nothing: all that have anything.
  nlohmann::json status(std::optional<uid_t> only = std::nullopt) const;

 private:
  // The parts that one user holds.
  struct User {
    // by What
    std::array<int64_t, kWhats> used{};
    // A token bucket for lines of the log: `lines` may still be written, as of `counted_ns` (now_ns()).
    // Its size is one second's worth.
    double lines = 0;
    int64_t counted_ns = 0;
    // lines refused since the latest take_unlogged()
    int64_t unlogged = 0;
  };
  // The entry of a user, made if there is none.
  User& user(uid_t uid);
  // Drops the entry of a user that has nothing, so that the map does not grow with every user that ever
  // came.
  void forget_idle(uid_t uid);

  // by What, the same for every user
  std::array<int64_t, kWhats> limits_;
  int64_t lines_per_s_;
  std::map<uid_t, User> users_;
};

}  // namespace hdt::daemon
