// watched_command.cc: the processes are found by their parents in /proc. This process adopts those whose
// parent has ended (PR_SET_CHILD_SUBREAPER), so that none is out of sight.
#include "watched_command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace hdt::client::test {

namespace {

constexpr int kLookMs = 100;
// Processes that the command has left behind get this long to end, and then to be gone.
constexpr int64_t kAfterwardsMs = 5'000;
// For all backtraces together, and for one.
constexpr int64_t kBacktracesMs = 60'000;
constexpr const char* kBacktraceS = "20";
// The longest text of a backtrace, in bytes.
constexpr size_t kMaxBacktrace = size_t{1} << 15;

std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// 0 if the process is gone. The name in front of it may hold anything but ends with the last parenthesis.
pid_t parent_of(pid_t pid) {
  const std::string stat = read_all("/proc/" + std::to_string(pid) + "/stat");
  const size_t name = stat.rfind(')');
  if (name == std::string::npos) return 0;
  std::istringstream rest(stat.substr(name + 1));
  std::string state;
  pid_t parent = 0;
  rest >> state >> parent;
  return parent;
}

// Also if the process has ended and its parent has not waited for it.
bool has_ended(pid_t pid) { return read_all("/proc/" + std::to_string(pid) + "/cmdline").empty(); }

// All processes below this one.
std::vector<pid_t> descendants() {
  std::vector<std::pair<pid_t, pid_t>> all;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto pid = static_cast<pid_t>(std::stol(name));
    all.emplace_back(pid, parent_of(pid));
  }
  std::vector<pid_t> found = {::getpid()};
  for (size_t i = 0; i < found.size(); ++i) {
    for (const auto& [pid, parent] : all) {
      if (parent == found[i]) found.push_back(pid);
    }
  }
  found.erase(found.begin());
  return found;
}

std::string backtrace(pid_t pid) {
  const std::string command = std::string("timeout -k 5 ") + kBacktraceS + " gdb -nx -batch -p " +
                              std::to_string(pid) + " -ex 'thread apply all bt' 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::string text;
  std::array<char, 4096> chunk;
  for (size_t got = 0; (got = fread(chunk.data(), 1, chunk.size(), pipe)) > 0;) {
    if (text.size() < kMaxBacktrace) text.append(chunk.data(), got);
  }
  (void)::pclose(pipe);
  return text;
}

std::string describe(pid_t pid, const Deadline& backtraces) {
  const std::filesystem::path folder = "/proc/" + std::to_string(pid);
  std::string command = read_all(folder / "cmdline");
  std::replace(command.begin(), command.end(), '\0', ' ');
  std::string text =
      "--- pid " + std::to_string(pid) + ", parent " + std::to_string(parent_of(pid)) + ": " + command + "\n";
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator(folder / "task", error)) {
    std::istringstream status(read_all(thread.path() / "status"));
    text += "thread " + thread.path().filename().string() + ":";
    for (std::string line; std::getline(status, line);) {
      std::replace(line.begin(), line.end(), '\t', ' ');
      if (line.starts_with("Name:") || line.starts_with("State:")) text += " " + line;
    }
    text += ", waits in " + read_all(thread.path() / "wchan") + "\n";
  }
  if (has_ended(pid)) return text;
  return text + (backtraces.expired() ? "no time for a backtrace\n" : backtrace(pid));
}

std::string describe_all() {
  const Deadline backtraces = Deadline::after_ms(kBacktracesMs);
  std::string text;
  for (const pid_t pid : descendants()) text += describe(pid, backtraces);
  return text;
}

// Ends the processes that are left and waits for them, and for those that have ended by themselves, too: this
// process has adopted them.
void end_all() {
  const Deadline deadline = Deadline::after_ms(kAfterwardsMs);
  while (!deadline.expired()) {
    std::vector<pid_t> left = descendants();
    std::erase_if(left, has_ended);
    if (left.empty()) break;
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    ::usleep(kLookMs * 1000);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

// Reads the bytes that are there. False at the end, when no process has the other end any more.
bool read_some(int pipe, std::string& output) {
  std::array<char, 4096> chunk;
  for (;;) {
    const ssize_t got = ::read(pipe, chunk.data(), chunk.size());
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    output.append(chunk.data(), static_cast<size_t>(got));
  }
}

}  // namespace

Outcome run_watched(const std::string& command, int64_t limit_ms) {
  Outcome outcome;
  std::array<int, 2> ends{};
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 || ::pipe2(ends.data(), O_CLOEXEC) != 0) {
    outcome.output = std::strerror(errno);
    return outcome;
  }
  const UniqueFd here(ends[0]);
  UniqueFd there(ends[1]);
  ::fcntl(here.get(), F_SETFL, O_NONBLOCK);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(there.get(), STDOUT_FILENO);
    ::dup2(there.get(), STDERR_FILENO);
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  there.reset();
  if (child < 0) {
    outcome.output = std::strerror(errno);
    return outcome;
  }
  // 1. Until the command has ended, and its output too, which a process that it has left behind may hold
  //    open.
  Deadline deadline = Deadline::after_ms(limit_ms);
  bool open = true;
  bool ended = false;
  while ((open || !ended) && !deadline.expired()) {
    pollfd waits{open ? here.get() : -1, POLLIN, 0};
    ::poll(&waits, 1, kLookMs);
    if (open) open = read_some(here.get(), outcome.output);
    int status = 0;
    if (ended || ::waitpid(child, &status, WNOHANG) != child) continue;
    ended = true;
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (WIFSIGNALED(status))
      outcome.output += std::string("\n--- ended by signal ") + ::strsignal(WTERMSIG(status)) + "\n";
    deadline = Deadline::earlier(deadline, Deadline::after_ms(kAfterwardsMs));
  }
  // 2. What still lives explains why it did not end.
  if (open || !ended) {
    outcome.output += ended ? "\n--- the command has ended, but not its output; its processes:\n"
                            : "\n--- not ended after " + std::to_string(limit_ms) + " ms; its processes:\n";
    outcome.output += describe_all();
    if (open) (void)read_some(here.get(), outcome.output);
    outcome.exit_code = -1;
  }
  end_all();
  return outcome;
}

}  // namespace hdt::client::test
