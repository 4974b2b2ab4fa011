// group_name_test.cc: the name of a group says which one it is, and nothing of its id.
#include "daemon/protocol/group_name.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <cctype>
#include <random>
#include <set>

namespace hdt::daemon {
namespace {

TEST(GroupName, IsOneForEachIdAndNotTheId) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::set<std::string> names;
  for (int i = 0; i < 1'000; ++i) {
    const uint64_t id = random();
    const std::string name = id_text(id);
    ASSERT_EQ(name.size(), 16U);
    for (const char digit : name) EXPECT_TRUE(std::isxdigit(static_cast<unsigned char>(digit))) << name;
    EXPECT_EQ(name, id_text(id)) << "the same on all nodes";
    EXPECT_EQ(short_id(id), name.substr(0, 8));
    EXPECT_NE(name, fmt::format("{:016x}", id));
    // As unlike as two random numbers: 32 of 64 bits differ, give or take.
    const uint64_t other = std::stoull(id_text(id ^ 1), nullptr, 16) ^ std::stoull(name, nullptr, 16);
    EXPECT_GT(__builtin_popcountll(other), 4) << name;
    names.insert(name);
  }
  EXPECT_EQ(names.size(), 1'000U);
}

}  // namespace
}  // namespace hdt::daemon
