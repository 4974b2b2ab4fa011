// left_behind_test.cc: what jobs leave behind: no files, sockets, descriptors or memory, however they end.
#include "tests/faults/embedded/job.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace hdt::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// Unix sockets of this machine whose path begins so.
size_t sockets_at(const std::string& path) {
  std::ifstream list("/proc/net/unix");
  size_t found = 0;
  for (std::string line; std::getline(list, line);) found += line.find(path) != std::string::npos ? 1 : 0;
  return found;
}

// Links of /proc/PID/fd, by what they lead to: "socket", "memfd", ...
std::map<std::string, size_t> descriptors_of(pid_t pid) {
  std::map<std::string, size_t> kinds;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    std::error_code gone;
    const std::string to = std::filesystem::read_symlink(entry.path(), gone);
    ++kinds[to.substr(0, to.find_first_of(":("))];
  }
  return kinds;
}

enum class How { kWell, kKilled, kAborted };

void end_job(Ranks& ranks, How how) {
  for (auto& rank : ranks) {
    if (how == How::kKilled) rank->process().signal(SIGKILL);
    if (how == How::kAborted) (void)rank->call("abort");
    if (how == How::kWell) rank->start("destroy");
  }
  for (auto& rank : ranks) {
    if (how == How::kWell) (void)rank->finish();
    if (how != How::kKilled) rank->start("exit");
  }
  for (auto& rank : ranks) EXPECT_TRUE(rank->process().wait(Deadline::after_ms(kEndMs)).has_value());
}

TEST_F(EmbeddedNodes, JobsLeaveNoFilesAndNoSockets) {
  for (int number = 0; number < 30; ++number) {
    Ranks ranks = job(number % 2 == 0 ? std::vector<int>{0, 0} : std::vector<int>{0, 1});
    expect_all(ranks, "allreduce 1000 4 0");
    end_job(ranks, static_cast<How>(number % 3));
  }
  // The next job removes the files that the killed ones left.
  Ranks last = job({0, 1});
  EXPECT_THAT(files(), UnorderedElementsAre("e0.sock", "e0.lock", "e1.sock", "e1.lock"));
  end_group(last);
  expect_nothing_left();
  EXPECT_EQ(sockets_at(folder_.path()), 0U);
}

// The host stays meanwhile.
TEST_F(EmbeddedNodes, JobsLeaveNothingInTheirHost) {
  Rank host = host_on(0);
  std::map<std::string, size_t> after_first;
  for (int number = 0; number < 13; ++number) {
    Ranks ranks = job({0, 0});
    expect_all(ranks, "allreduce 1000 4 0");
    end_job(ranks, static_cast<How>(number % 3));
    if (number == 2) after_first = descriptors_of(host->process().pid());
  }
  // The last one's departure is read a moment later.
  const Deadline deadline = Deadline::after_ms(kAnswerMs);
  while (descriptors_of(host->process().pid())["memfd"] > after_first["memfd"] && !deadline.expired())
    ::usleep(5'000);
  EXPECT_LE(descriptors_of(host->process().pid())["memfd"], after_first["memfd"]);
  EXPECT_EQ(host->call("destroy").result, HDT_SUCCESS);
  expect_exit(*host);
  expect_nothing_left();
}

TEST(LeftBehind, JobsLeaveNothingInTheFolderOfHdtcommd) {
  World world(1);
  std::map<std::string, size_t> after_first;
  for (int number = 0; number < 30; ++number) {
    auto ranks = world.group({0, 0});
    end_job(ranks, static_cast<How>(number % 3));
    if (number == 2) after_first = descriptors_of(world.node(0).process().pid());
  }
  const auto now = [&] { return descriptors_of(world.node(0).process().pid()); };
  const Deadline deadline = Deadline::after_ms(kAnswerMs);
  while ((now()["memfd"] > after_first["memfd"] || now()["anon_inode"] > after_first["anon_inode"]) &&
         !deadline.expired())
    ::usleep(5'000);
  EXPECT_LE(now()["memfd"], after_first["memfd"]);
  EXPECT_LE(now()["anon_inode"], after_first["anon_inode"]);
  while (sockets_at(world.node(0).socket()) > 1 && !deadline.expired()) ::usleep(5'000);
  EXPECT_EQ(sockets_at(world.node(0).socket()), 1U);  // the listener
}

// Killed with everybody who could go on: the next start of any node of this user cleans up.
TEST_F(EmbeddedNodes, FilesOfKilledHostsAreRemovedByTheNextStart) {
  Rank first = host_on(2);
  Rank second = host_on(3);
  for (Rank* host : {&first, &second}) kill(**host);
  EXPECT_THAT(files(), UnorderedElementsAre("e2.sock", "e2.lock", "e3.sock", "e3.lock"));
  Rank other = host_on(0);
  EXPECT_THAT(files(), UnorderedElementsAre("e0.sock", "e0.lock"));
  Rank living = host_on(1);
  kill(*other);
  Rank again = host_on(2);
  EXPECT_THAT(files(), UnorderedElementsAre("e1.sock", "e1.lock", "e2.sock", "e2.lock"));
}

TEST_F(EmbeddedNodes, HdtCommbenchEndsWithoutAWordAndLeavesNothing) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  // A daemon that ends gives the others 200 ms to hear of it, which is not enough for twelve slowed ones.
  const std::string nodes = "3";
#else
  const std::string nodes = "12";
#endif
  const ProgramRun done = run_program({HDT_COMMBENCH, "barrier", "--nodes", nodes, "--local", "1", "-n", "2"},
                                      {{"XDG_RUNTIME_DIR", folder_.path()}});
  EXPECT_EQ(done.status, 0);
  EXPECT_EQ(done.errors, "");
  expect_nothing_left();
}

// Other users can reach a daemon of the system, whatever the umask was.
TEST(Umask, TheFolderOfTheSocketIsOpenToAll) {
  TemporaryFolder folder;
  const mode_t before = ::umask(077);
  ChildProcess daemon({NodeProcess::program(), "--node.socket", folder.file("a/b/s.sock"), "--nics.addresses",
                       "127.0.1.1", "--nics.port", "0"},
                      {}, folder.file("log"));
  ::umask(before);
  const Deadline deadline = Deadline::after_ms(kAnswerMs);
  while (!std::filesystem::exists(folder.file("a/b/s.sock")) && !deadline.expired()) ::usleep(5'000);
  using std::filesystem::perms;
  while (std::filesystem::status(folder.file("a/b/s.sock")).permissions() != static_cast<perms>(0666) &&
         !deadline.expired())
    ::usleep(1'000);
  for (const char* made : {"a", "a/b"})
    EXPECT_EQ(std::filesystem::status(folder.file(made)).permissions(), static_cast<perms>(0755)) << made;
  EXPECT_EQ(std::filesystem::status(folder.file("a/b/s.sock")).permissions(), static_cast<perms>(0666));
  daemon.signal(SIGTERM);
  EXPECT_EQ(daemon.wait(Deadline::after_ms(kAnswerMs)), 0);
  EXPECT_THAT(daemon.errors(), HasSubstr("mode 0700"));  // the folder above, which was there before
  EXPECT_FALSE(std::filesystem::exists(folder.file("a/b/s.sock")));
}

}  // namespace
}  // namespace hdt::testing
