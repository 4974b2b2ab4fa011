// user_limits.h: what the processes of one user may have of a daemon at a time, and how much they have.
// Everything that a process can ask for and that lasts is claimed here first, and given back by the end of
// its Claim; so nobody takes more than a part, and a user's end of all sessions gives everything back.
//
// Root and the daemon's own user have no limits: they could end the daemon anyhow, and the system's limits
// hold for them.
//
// Owner and thread: the control thread. Claims end before the UserLimits that gave them.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/config.h"
#include "base/status.h"

namespace hdt::daemon {

class UserLimits {
 public:
  enum class What : uint8_t {
    kSessions,   // connections to the socket, greeted or not
    kGroups,     // groups of this node that a rank of the user was the first of
    kSeats,      // ranks in groups, and such as wait for theirs
    kMaking,     // groups that ranks wait for
    kMemories,   // allocations that are shared with other ranks
    kMemoryMib,  // of those, all together
    kListeners,  // meeting places (HDT_RENDEZVOUS, MASTER_ADDR) at which the daemon listens
    kQuestions,  // of hdtctl, that are not answered yet
    kUnread,     // answers with descriptors that are not read: the kernel counts those as the daemon's
  };
  static constexpr size_t kWhats = 9;

  // A part of a user's limit, until it ends.
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

  // `session_descriptors`: what one session takes of this process. Where the limits would let one user take
  // more than seven eighths of the descriptors that the process may have, they are lower.
  UserLimits(const Config::Limits& limits, int64_t session_descriptors);
  UserLimits(const UserLimits&) = delete;
  UserLimits& operator=(const UserLimits&) = delete;

  // kSystem: the user has as much as it may. The text says which limit it is, whose, its value, and the key
  // that sets it.
  Result<Claim> claim(uid_t uid, What what, int64_t amount = 1);
  // Whether a line in the log on behalf of the user may be written now. Lines that were not are counted, and
  // told by the next one that is.
  bool may_log(uid_t uid);
  // Lines of the user's that were not written since the last one that was.
  int64_t take_unlogged(uid_t uid);
  bool is_exempt(uid_t uid) const;

  // {"each": {"sessions": 1024, ...}, "users": [{"uid": 1000, "sessions": 3, ...}]}; users: all that have
  // anything, or one.
  nlohmann::json status(std::optional<uid_t> only = std::nullopt) const;

 private:
  struct User {
    std::array<int64_t, kWhats> used{};
    // Lines that may still be written, and when the count was right.
    double lines = 0;
    int64_t counted_ns = 0;
    int64_t unlogged = 0;
  };
  User& user(uid_t uid);
  void forget_idle(uid_t uid);

  std::array<int64_t, kWhats> limits_;
  int64_t lines_per_s_;
  std::map<uid_t, User> users_;
};

}  // namespace hdt::daemon
