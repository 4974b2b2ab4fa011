#include "tests/integration/communicator/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>
#include <stdexcept>

extern char** environ;

namespace hdt::testing {

namespace {

std::vector<std::string> merged(const std::map<std::string, std::string>& extra) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    if (variable.rfind("HDT_", 0) != 0 && !extra.contains(variable.substr(0, variable.find('='))))
      all.push_back(variable);
  }
  for (const auto& [key, value] : extra) all.push_back(key + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command,
                           const std::map<std::string, std::string>& environment, std::string error_file)
    : error_file_(std::move(error_file)) {
  int to_child[2];
  int from_child[2];
  if (::pipe2(to_child, O_CLOEXEC) != 0 || ::pipe2(from_child, O_CLOEXEC) != 0)
    throw std::runtime_error("pipe2");
  in_.reset(to_child[1]);
  out_.reset(from_child[0]);
  const UniqueFd child_in(to_child[0]);
  const UniqueFd child_out(from_child[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, child_in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, child_out.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, error_file_.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  // A child that has ended is told to the test by say(), which must not end it. The child itself gets the
  // signal as ever.
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t as_ever;
  sigemptyset(&as_ever);
  sigaddset(&as_ever, SIGPIPE);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigdefault(&attributes, &as_ever);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  // Ended by the kernel should the test be killed; more exactly, should the thread end that is here.
  std::vector<std::string> words{"/usr/bin/setpriv", "--pdeathsig", "KILL", "--"};
  words.insert(words.end(), command.begin(), command.end());
  std::vector<std::string> variables = merged(environment);
  const int error = ::posix_spawn(&pid_, words.front().c_str(), &actions, &attributes, pointers(words).data(),
                                  pointers(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + command.front());
  watch_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  if (!watch_.valid()) throw std::runtime_error("pidfd_open");
}

ChildProcess::~ChildProcess() {
  if (ended_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void ChildProcess::say(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(in_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw std::runtime_error("process " + std::to_string(pid_) + " does not listen");
  }
}

std::optional<std::string> ChildProcess::read_line(const Deadline& deadline) {
  for (;;) {
    if (const auto end = buffered_.find('\n'); end != std::string::npos) {
      std::string line = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      return line;
    }
    pollfd readable{out_.get(), POLLIN, 0};
    if (::poll(&readable, 1, deadline.poll_timeout_ms()) <= 0) return std::nullopt;
    char chunk[4096];
    const ssize_t got = ::read(out_.get(), chunk, sizeof chunk);
    if (got <= 0) return std::nullopt;
    buffered_.append(chunk, static_cast<size_t>(got));
  }
}

void ChildProcess::signal(int number) {
  if (ended_) return;
  ::kill(pid_, number);
  // The signal stops one thread, which stops the others; on a busy machine they would run on for a while. No
  // process can refuse it, so this wait ends. What it finds stays for wait().
  siginfo_t stopped;
  if (number == SIGSTOP) ::waitid(P_PID, static_cast<id_t>(pid_), &stopped, WSTOPPED | WEXITED | WNOWAIT);
}

std::optional<int> ChildProcess::wait(const Deadline& deadline) {
  if (ended_) return ended_;
  pollfd ended{watch_.get(), POLLIN, 0};
  if (::poll(&ended, 1, deadline.poll_timeout_ms()) <= 0) return std::nullopt;
  int status = 0;
  ::waitpid(pid_, &status, 0);
  ended_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended_;
}

std::string ChildProcess::errors() const {
  std::ifstream file(error_file_);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace hdt::testing
