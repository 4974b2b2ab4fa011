// watchdog_test.cc: what hdtcommd tells the service manager, and that it is silent as long as one of its
// threads hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/clock.h"
#include "base/seqpacket.h"
#include "tests/integration/communicator/node_process.h"

namespace hdt::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kWaitMs = 30'000;

// Hears what a service tells its manager.
class Manager {
 public:
  explicit Manager(std::string address) : address_(std::move(address)) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::copy(address_.begin(), address_.end(), name.sun_path);
    if (name.sun_path[0] == '@') name.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
    if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&name), size) != 0)
      throw std::runtime_error("bind");
  }

  std::map<std::string, std::string> environment(int64_t watchdog_ms) const {
    return {{"NOTIFY_SOCKET", address_}, {"WATCHDOG_USEC", std::to_string(watchdog_ms * 1000)}};
  }
  // The next word; nothing at the deadline.
  std::optional<std::string> word(const Deadline& deadline = Deadline::after_ms(kWaitMs)) {
    pollfd wait{socket_.get(), POLLIN, 0};
    if (::poll(&wait, 1, deadline.poll_timeout_ms()) != 1) return std::nullopt;
    char text[4096];
    const ssize_t size = ::recv(socket_.get(), text, sizeof text, 0);
    return size < 0 ? std::nullopt : std::optional(std::string(text, static_cast<size_t>(size)));
  }
  // How many words have come and were not read.
  int drain() {
    int words = 0;
    while (word(Deadline::after_ms(0))) ++words;
    return words;
  }

 private:
  std::string address_;
  UniqueFd socket_{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
};

std::vector<std::pair<pid_t, std::string>> threads_of(pid_t process) {
  std::vector<std::pair<pid_t, std::string>> threads;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task")) {
    std::string name;
    std::getline(std::ifstream(entry.path() / "comm"), name);
    threads.emplace_back(std::stoi(entry.path().filename()), name);
  }
  return threads;
}

// How often the daemon has said that this thread hangs.
size_t complaints(NodeProcess& node, const std::string& thread) {
  const std::string log = node.process().errors();
  const std::string words = "thread " + thread + " does not pass its loop";
  size_t count = 0;
  for (size_t at = log.find(words); at != std::string::npos; at = log.find(words, at + 1)) ++count;
  return count;
}

// Whether a stopped thread waits for events: nowhere else, as it may hold a lock that the others need.
bool waits_for_events(pid_t process, pid_t thread) {
  long call = -1;
  std::ifstream("/proc/" + std::to_string(process) + "/task/" + std::to_string(thread) + "/syscall") >> call;
  return call == SYS_epoll_wait || call == SYS_epoll_pwait;
}

// Stops this thread alone, where it waits for events. 0, or what the kernel says.
int stop_thread(pid_t process, pid_t thread) {
  if (::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) return errno;
  for (const Deadline deadline = Deadline::after_ms(kWaitMs); !deadline.expired(); ::usleep(1'000)) {
    int status = 0;
    if (::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0) return errno;
    if (::waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status)) return ECHILD;
    if (waits_for_events(process, thread)) return 0;
    if (::ptrace(PTRACE_CONT, thread, nullptr, nullptr) != 0) return errno;
  }
  return ETIMEDOUT;
}

bool await_complaints(NodeProcess& node, const std::string& thread, size_t count) {
  const Deadline deadline = Deadline::after_ms(kWaitMs);
  while (complaints(node, thread) < count) {
    if (deadline.expired()) return false;
    ::usleep(5'000);
  }
  return true;
}

TEST(Watchdog, IsFedAsLongAsAllThreadsPassTheirLoops) {
  TemporaryFolder folder;
  Manager manager(folder.file("notify"));
  NodeProcess node(folder, 0, {"--node.threads", "2"}, manager.environment(400));
  ASSERT_EQ(manager.word(), "READY=1");
  EXPECT_TRUE(connect_seqpacket(node.socket()).is_ok());
  for (int i = 0; i < 3; ++i) ASSERT_EQ(manager.word(), "WATCHDOG=1") << node.process().errors();

  std::vector<std::string> stopped;
  for (const auto& [thread, name] : threads_of(node.process().pid())) {
    if (name != "hdt-control" && !name.starts_with("hdt-engine-")) continue;
    const int error = stop_thread(node.process().pid(), thread);
    if (error == EPERM) {
      GTEST_SKIP() << "threads of other processes cannot be stopped here: " << std::strerror(error);
    }
    ASSERT_EQ(error, 0) << std::strerror(error);
    // A look at it from before it was stopped may still be told; what is told after two looks is of a thread
    // that is stopped.
    const size_t before = complaints(node, name);
    ASSERT_TRUE(await_complaints(node, name, before + 2)) << name << "\n" << node.process().errors();
    manager.drain();
    ASSERT_TRUE(await_complaints(node, name, before + 5)) << name << "\n" << node.process().errors();
    EXPECT_EQ(manager.drain(), 0) << name;
    ASSERT_EQ(::ptrace(PTRACE_DETACH, thread, nullptr, nullptr), 0) << std::strerror(errno);
    ASSERT_EQ(manager.word(), "WATCHDOG=1") << name << " runs again\n" << node.process().errors();
    stopped.push_back(name);
  }
  std::sort(stopped.begin(), stopped.end());
  EXPECT_EQ(stopped, (std::vector<std::string>{"hdt-control", "hdt-engine-0", "hdt-engine-1"}));

  node.process().signal(SIGTERM);
  for (;;) {
    const auto word = manager.word();
    ASSERT_TRUE(word.has_value());
    if (*word == "WATCHDOG=1") continue;
    EXPECT_THAT(*word, HasSubstr("STOPPING=1"));
    break;
  }
  EXPECT_EQ(node.process().wait(Deadline::after_ms(kWaitMs)), 0);
}

// Signals must not put the beat off.
TEST(Watchdog, IsFedWhileSignalsCome) {
  TemporaryFolder folder;
  Manager manager("@hdt-watchdog-test-" + std::to_string(::getpid()));
  NodeProcess node(folder, 0, {}, manager.environment(400));
  ASSERT_EQ(manager.word(), "READY=1");
  const Deadline deadline = Deadline::after_ms(kWaitMs);
  std::optional<std::string> word;
  while (!word && !deadline.expired()) {
    node.process().signal(SIGHUP);
    word = manager.word(Deadline::after_ms(1));
  }
  EXPECT_EQ(word, "WATCHDOG=1");
}

TEST(Watchdog, OfAnotherProcessIsNotFed) {
  TemporaryFolder folder;
  Manager manager(folder.file("notify"));
  auto environment = manager.environment(20);
  environment["WATCHDOG_PID"] = std::to_string(::getpid());
  NodeProcess node(folder, 0, {}, environment);
  ASSERT_EQ(manager.word(), "READY=1");
  node.process().signal(SIGTERM);
  const auto word = manager.word();
  ASSERT_TRUE(word.has_value());
  EXPECT_THAT(*word, HasSubstr("STOPPING=1"));
}

TEST(ServiceManager, WrongVariablesAreRefused) {
  TemporaryFolder folder;
  const std::vector<std::pair<std::map<std::string, std::string>, std::string>> cases = {
      {{{"NOTIFY_SOCKET", "somewhere"}}, "NOTIFY_SOCKET is 'somewhere'"},
      {{{"NOTIFY_SOCKET", "/" + std::string(200, 'a')}}, "fewer than 108 bytes"},
      {{{"NOTIFY_SOCKET", "/n"}, {"WATCHDOG_USEC", "soon"}}, "WATCHDOG_USEC is 'soon'"},
      {{{"NOTIFY_SOCKET", "/n"}, {"WATCHDOG_USEC", "-1"}}, "WATCHDOG_USEC is '-1'"},
  };
  for (const auto& [environment, words] : cases) {
    const ProgramRun done = run_program({NodeProcess::program(), "--nics.addresses", "127.0.1.1",
                                         "--nics.port", "0", "--node.socket", folder.file("s")},
                                        environment);
    EXPECT_EQ(done.status, 2) << done.errors;
    EXPECT_THAT(done.errors, HasSubstr(words));
  }
}

// The daemon serves all the same: nobody may end it by ending its manager.
TEST(ServiceManager, ThatIsGoneIsNamedOnce) {
  TemporaryFolder folder;
  std::map<std::string, std::string> environment;
  {
    Manager manager(folder.file("notify"));
    environment = manager.environment(20);
  }
  NodeProcess node(folder, 0, {}, environment);
  const Deadline deadline = Deadline::after_ms(kWaitMs);
  const std::string words = "cannot send 'READY=1' to the service manager at ";
  while (node.process().errors().find(words) == std::string::npos && !deadline.expired()) ::usleep(5'000);
  EXPECT_THAT(node.process().errors(), HasSubstr(words));
  EXPECT_TRUE(connect_seqpacket(node.socket()).is_ok());
}

}  // namespace
}  // namespace hdt::testing
