// held_socket_test.cc: a rank is killed while a child of it lives on with copies of what it had open. The
// others hear of the rank's end as they do without a child.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "tests/faults/communicator/rank_process.h"

namespace hdt::testing {
namespace {

using ::testing::HasSubstr;

// The project's promise: the others know within this time.
constexpr int64_t kToldMs = 1'000;

// A process that nobody waits for, ended at the end of the test.
class Orphan {
 public:
  explicit Orphan(const Answer& made) : pid_(std::atoi(made.text.c_str())) {}
  ~Orphan() {
    if (pid_ > 1) ::kill(pid_, SIGKILL);
  }
  Orphan(const Orphan&) = delete;
  Orphan& operator=(const Orphan&) = delete;
  bool lives() const { return pid_ > 1 && ::kill(pid_, 0) == 0; }

 private:
  pid_t pid_;
};

struct Shape {
  const char* child;
  std::vector<int> placement;
};

class HeldSocket : public ::testing::TestWithParam<Shape> {
 protected:
  World world_{2};
  std::vector<std::unique_ptr<RankProcess>> ranks_ = world_.group(GetParam().placement);
};

TEST_P(HeldSocket, TheRankIsLostWhenItIsKilled) {
  const Orphan child(ranks_[1]->call(std::string("child ") + GetParam().child));
  ASSERT_TRUE(child.lives());
  ranks_[0]->start("sums 0 2 100000 1");
  EXPECT_EQ(ranks_[0]->finish(50).result, HDT_IN_PROGRESS);
  ranks_[1]->process().signal(SIGKILL);
  const Answer answer = ranks_[0]->finish(kToldMs);
  EXPECT_EQ(answer.result, HDT_ERR_RANK_LOST) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("rank 1"));
  EXPECT_TRUE(child.lives());
}

INSTANTIATE_TEST_SUITE_P(All, HeldSocket,
                         ::testing::Values(Shape{"sleep", {0, 0}}, Shape{"sleep", {0, 1}},
                                           Shape{"stop", {0, 0}}, Shape{"daemon", {0, 0}},
                                           Shape{"clone", {0, 0}}, Shape{"clone", {0, 1}}),
                         [](const auto& shape) {
                           return shape.param.child +
                                  std::string(shape.param.placement[1] == 0 ? "OneNode" : "TwoNodes");
                         });

// A process is dead when its last thread is.
TEST(HeldSocketless, AProcessWhoseFirstThreadHasEndedLives) {
  World world(1);
  std::vector<std::unique_ptr<RankProcess>> ranks;
  ranks.push_back(world.rank_on(0));
  ranks.push_back(std::make_unique<RankProcess>(
      world.folder(), std::map<std::string, std::string>{{"HDT_SOCKET", world.node(0).socket()},
                                                         {"HDT_TEST_LEADERLESS", "1"}}));
  World::join(ranks, kAnswerMs, "");
  for (int round = 0; round < 3; ++round) {
    for (size_t rank = 0; rank < 2; ++rank)
      ranks[rank]->start("sums " + std::to_string(rank) + " 2 100000 3");
    for (auto& rank : ranks) EXPECT_EQ(rank->finish().text, "0 wrong");
    ::usleep(100'000);
  }
  ranks[0]->start("sums 0 2 100000 1");
  ranks[1]->process().signal(SIGKILL);
  EXPECT_EQ(ranks[0]->finish(kToldMs).result, HDT_ERR_RANK_LOST);
}

// Pidfds, eventfds and memfds: those of sessions. (Sockets are other nodes', too.)
size_t descriptors_of(pid_t pid) {
  size_t found = 0;
  std::error_code gone;  // one that is closed meanwhile
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    const std::string what = std::filesystem::read_symlink(entry.path(), gone).string();
    for (const char* kind : {"pidfd", "eventfd", "memfd"}) {
      if (what.find(kind) != std::string::npos) ++found;
    }
  }
  return found;
}

// A copy of the socket's other end lives on, and the daemon keeps nothing of the session.
TEST(HeldSocketless, NothingOfASessionStaysInTheDaemon) {
  World world(1);
  const pid_t daemon = world.node(0).process().pid();
  const size_t before = descriptors_of(daemon);
  std::vector<std::unique_ptr<Orphan>> children;
  for (int round = 0; round < 3; ++round) {
    auto ranks = world.group({0, 0});
    EXPECT_GE(descriptors_of(daemon), before + 2) << "a pidfd for each";
    for (auto& rank : ranks) children.push_back(std::make_unique<Orphan>(rank->call("child clone")));
    for (auto& rank : ranks) rank->process().signal(SIGKILL);
    // The engine gives its part back when it has heard.
    const Deadline deadline = Deadline::after_ms(kAnswerMs);
    while (descriptors_of(daemon) > before && !deadline.expired()) ::usleep(5'000);
    // Fewer: what asked whether the daemon serves was still there before.
    EXPECT_LE(descriptors_of(daemon), before) << "round " << round;
  }
}

// The daemon of the node lives in the rank that is killed: its sockets, its listener and its lock would be
// the child's.
TEST(HeldEmbeddedDaemon, EndsWithItsProcess) {
  const TemporaryFolder folder;
  const std::map<std::string, std::string> environment = {
      {"HDT_NODE_NAME", "held"}, {"HDT_NICS_ADDRESSES", "127.0.1.1"}, {"XDG_RUNTIME_DIR", folder.path()}};
  const auto job = [&] {
    std::vector<std::unique_ptr<RankProcess>> ranks;
    for (int rank = 0; rank < 2; ++rank) ranks.push_back(std::make_unique<RankProcess>(folder, environment));
    World::join(ranks, kAnswerMs, "");
    return ranks;
  };
  auto ranks = job();
  const Orphan child(ranks[0]->call("child sleep"));
  ASSERT_TRUE(child.lives());
  ranks[1]->start("sums 1 2 100000 1");
  EXPECT_EQ(ranks[1]->finish(50).result, HDT_IN_PROGRESS);
  ranks[0]->process().signal(SIGKILL);
  const Answer answer = ranks[1]->finish(kToldMs);
  EXPECT_EQ(answer.result, HDT_ERR_RANK_LOST) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("rank 0"));
  EXPECT_TRUE(child.lives());
  // The next job's first process takes its place.
  auto next = job();
  for (size_t rank = 0; rank < 2; ++rank) next[rank]->start("sums " + std::to_string(rank) + " 2 1000 1");
  for (auto& rank : next) EXPECT_EQ(rank->finish().text, "0 wrong");
}

}  // namespace
}  // namespace hdt::testing
