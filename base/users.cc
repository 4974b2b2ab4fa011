// users.cc: reads the user namespace's map from /proc/self/uid_map. Each line maps `count` numbers; a
// map that covers all 2^32 - 1 numbers leaves nobody without one.
#include "base/users.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace hdt {

namespace {

constexpr uint64_t kAllUsers = 0xffffffff;
constexpr uint64_t kOverflow = 65534;  // the kernel's default, if the file cannot be read

// Whether the kernel uses `uid` for all users that have no number in this namespace. In the first
// namespace everybody has a number, so the overflow uid is a user like any other there.
bool stands_for_many(uid_t uid) {
  uint64_t overflow = kOverflow;
  std::ifstream("/proc/sys/kernel/overflowuid") >> overflow;
  if (uid != overflow) return false;
  std::ifstream map("/proc/self/uid_map");
  uint64_t mapped = 0;
  for (uint64_t inside = 0, outside = 0, count = 0; map >> inside >> outside >> count;) mapped += count;
  return mapped < kAllUsers;
}

}  // namespace

bool is_this_user(uid_t uid) { return uid == ::geteuid() && !stands_for_many(uid); }

bool has_a_number(uid_t uid) { return !stands_for_many(uid); }

bool this_user_has_a_number() { return !stands_for_many(::geteuid()); }

}  // namespace hdt
