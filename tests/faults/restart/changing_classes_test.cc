// changing_classes_test.cc: classes change while daemons are killed and started again: who asks for a change
// is told whether it holds, and no operation notices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>

#include "tests/faults/restart/working_ranks.h"

namespace hdt::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kNodes = 3;
constexpr int kKills = 6;
constexpr int kMostKills = 13;  // the last pause is some ten seconds
const std::vector<std::string> kBackends = {"tcp", "near", "local"};

ProgramRun change(World& world, int by, const std::string& backend) {
  return run_program(
      {HDT_HDTCTL, "--socket", world.node(by).socket(), "class", "set", "default", "backends=" + backend});
}

// Every node can be asked, also one that was started again a moment ago.
void expect_changes(World& world) {
  for (int by = 0; by < kNodes; ++by) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kAnswerMs);
    ProgramRun done = change(world, by, kBackends[static_cast<size_t>(by)]);
    while (done.status != 0 && std::chrono::steady_clock::now() < until) {
      sleep_ms(20);
      done = change(world, by, kBackends[static_cast<size_t>(by)]);
    }
    EXPECT_EQ(done.status, 0) << done.errors;
  }
}

TEST(ChangingClasses, WhileDaemonsAreKilled) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::printf("seed %u\n", seed);
  std::mt19937_64 random(seed);
  World world(kNodes, with_ports(kNodes), {{"HDT_TRANSPORT_PATH", HDT_TEST_MODULES "/good"}});
  auto ranks = world.group({0, 1, 2});
  Work work(world, ranks, seed, false);
  std::atomic<bool> enough{false};
  std::atomic<int> changed{0};
  std::thread changing([&world, &enough, &changed, random = std::mt19937_64(seed + 1)]() mutable {
    while (!enough) {
      const auto by = static_cast<int>(random() % kNodes);
      const ProgramRun done = change(world, by, kBackends[random() % kBackends.size()]);
      EXPECT_THAT(done.status, AnyOf(0, 1));
      if (done.status == 0) {
        ++changed;
      } else {
        EXPECT_THAT(done.errors, HasSubstr("hdtctl: "));
      }
    }
  });
  // A change needs all daemons at once for a while, and how long depends on the machine: after six kills the
  // pauses grow until a change has come between two kills.
  for (int kill = 0; kill < kKills || (changed == 0 && kill < kMostKills); ++kill) {
    sleep_ms((5 + random() % 200) << std::max(0, kill - kKills));
    work.expect_under_way();
    const auto node = static_cast<int>(random() % kNodes);
    world.kill_daemon(node);
    sleep_ms(random() % 50);
    world.node(node).start();
  }
  enough = true;
  changing.join();
  std::printf("%d changes\n", changed.load());
  EXPECT_GT(changed, 0);
  expect_changes(world);
  const std::string done = work.finish();
  // Undisturbed, it gives the same bits.
  Work again(world, ranks, seed, false, std::stoull(done));
  EXPECT_EQ(again.finish(), done);
  for (auto& rank : ranks) EXPECT_EQ(rank->call("destroy").result, HDT_SUCCESS);
  world.expect_serving();
}

}  // namespace
}  // namespace hdt::testing
