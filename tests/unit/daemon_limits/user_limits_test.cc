// user_limits_test.cc: what one user may have: to the limit and not beyond, given back by the end of each
// claim, and nobody else's business.
#include "daemon/sessions/user_limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

namespace hdt::daemon {
namespace {

using What = UserLimits::What;

// Nobody who runs the tests.
constexpr uid_t kUser = 61'000;
constexpr uid_t kOther = 61'001;

Config::Limits small() {
  Config::Limits limits;
  limits.sessions = 3;
  limits.groups = 2;
  limits.memory_mib = 100;
  limits.log_lines_per_s = 5;
  return limits;
}

int64_t used(const UserLimits& limits, uid_t uid, const char* what) {
  const auto users = limits.status()["users"];
  const auto found =
      std::find_if(users.begin(), users.end(), [&](const auto& user) { return user["uid"] == uid; });
  return found == users.end() ? 0 : (*found)[what].template get<int64_t>();
}

TEST(UserLimits, AUserHasAsMuchAsItMayAndNoMore) {
  UserLimits limits(small(), 1);
  std::vector<UserLimits::Claim> claims;
  for (int i = 0; i < 3; ++i) claims.push_back(limits.claim(kUser, What::kSessions).take());
  const auto more = limits.claim(kUser, What::kSessions);
  ASSERT_FALSE(more.is_ok());
  EXPECT_EQ(more.status().code(), Code::kSystem);
  EXPECT_EQ(more.status().message(),
            "user 61000 has 3 sessions at this daemon, and may have 3 (limits.sessions)");
  EXPECT_TRUE(limits.claim(kUser, What::kGroups).is_ok()) << "another limit";
  EXPECT_TRUE(limits.claim(kOther, What::kSessions).is_ok()) << "another user";
  claims.pop_back();
  EXPECT_TRUE(limits.claim(kUser, What::kSessions).is_ok());
}

TEST(UserLimits, AnAmountFitsAsAWholeOrNotAtAll) {
  UserLimits limits(small(), 1);
  const auto most = limits.claim(kUser, What::kMemoryMib, 60);
  ASSERT_TRUE(most.is_ok());
  const auto more = limits.claim(kUser, What::kMemoryMib, 41);
  ASSERT_FALSE(more.is_ok());
  EXPECT_NE(more.status().message().find("asks for 41 more"), std::string::npos) << more.status().message();
  EXPECT_EQ(used(limits, kUser, "memory_mib"), 60);
  EXPECT_FALSE(limits.claim(kUser, What::kMemoryMib, INT64_MAX).is_ok()) << "no sum overflows";
  EXPECT_TRUE(limits.claim(kUser, What::kMemoryMib, 40).is_ok());
}

TEST(UserLimits, AClaimThatMovesIsGivenBackOnce) {
  UserLimits limits(small(), 1);
  {
    UserLimits::Claim first = limits.claim(kUser, What::kGroups).take();
    UserLimits::Claim second = std::move(first);
    EXPECT_EQ(used(limits, kUser, "groups"), 1);
    second = limits.claim(kUser, What::kGroups).take();
    EXPECT_EQ(used(limits, kUser, "groups"), 1) << "what it held before is given back";
    second.release();
    second.release();
    EXPECT_EQ(used(limits, kUser, "groups"), 0);
  }
  EXPECT_EQ(used(limits, kUser, "groups"), 0);
}

TEST(UserLimits, CountsAreRightInWhateverOrderClaimsComeAndGo) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  Config::Limits some = small();
  some.sessions = 20;
  UserLimits limits(some, 1);
  std::vector<UserLimits::Claim> held;
  for (int i = 0; i < 5'000; ++i) {
    if (random() % 2 == 0) {
      auto claim = limits.claim(kUser, What::kSessions);
      EXPECT_EQ(claim.is_ok(), held.size() < 20);
      if (claim.is_ok()) held.push_back(claim.take());
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      held.pop_back();
    }
    ASSERT_EQ(used(limits, kUser, "sessions"), static_cast<int64_t>(held.size()));
  }
}

TEST(UserLimits, RootAndTheDaemonsUserAreCountedOnly) {
  UserLimits limits(small(), 1);
  std::vector<UserLimits::Claim> claims;
  for (const uid_t uid : {uid_t{0}, ::geteuid()}) {
    EXPECT_TRUE(limits.is_exempt(uid));
    for (int i = 0; i < 10; ++i) claims.push_back(limits.claim(uid, What::kSessions).take());
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(limits.may_log(uid));
  }
  EXPECT_GE(used(limits, 0, "sessions"), 10);
  EXPECT_FALSE(limits.is_exempt(kUser));
}

TEST(UserLimits, LinesThatAreLeftOutAreCounted) {
  Config::Limits slow = small();
  slow.log_lines_per_s = 1;
  UserLimits limits(slow, 1);
  int written = 0, asked = 0;
  // The first line of a user may be written; of those at once after it, one is left out at last.
  for (; asked < 1'000'000 && written == asked; ++asked) written += limits.may_log(kUser) ? 1 : 0;
  EXPECT_GE(written, 1);
  EXPECT_EQ(asked, written + 1);
  EXPECT_TRUE(limits.may_log(kOther));
  EXPECT_EQ(limits.take_unlogged(kUser), 1);
  EXPECT_EQ(limits.take_unlogged(kUser), 0) << "told once";
  EXPECT_EQ(limits.take_unlogged(kOther), 0);
}

// However large the configured limits are, the sessions of one user leave descriptors for everybody else.
TEST(UserLimits, DescriptorsAreNotForOneUserAlone) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 400;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const UserLimits limits(Config::Limits(), 4);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  const auto each = limits.status()["each"];
  EXPECT_EQ(each["sessions"], 50) << "half of 400, of which each takes four";
  EXPECT_EQ(each["memories"], 50);
  EXPECT_EQ(each["groups"], 25);
  EXPECT_EQ(each["making"], 25);
  EXPECT_EQ(each["unread"], 50);
  EXPECT_EQ(each["questions"], Config::Limits().questions) << "takes none";
}

TEST(UserLimits, StatusTellsAUserOfItselfOnly) {
  UserLimits limits(small(), 1);
  const auto mine = limits.claim(kUser, What::kGroups);
  const auto others = limits.claim(kOther, What::kGroups);
  EXPECT_EQ(limits.status()["users"].size(), 2U);
  const auto told = limits.status(kUser);
  ASSERT_EQ(told["users"].size(), 1U);
  EXPECT_EQ(told["users"][0]["uid"], kUser);
  EXPECT_EQ(told["users"][0]["groups"], 1);
  EXPECT_EQ(told["users"][0]["limited"], true);
  EXPECT_EQ(told["each"]["groups"], 2);
}

}  // namespace
}  // namespace hdt::daemon
