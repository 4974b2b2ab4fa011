// children.h: children of a test that has one thread.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

namespace hdt::testing {

inline pid_t child(const std::function<void()>& body) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::alarm(60);  // it does not outlive the test
  body();
  ::_exit(0);
}

inline void end(pid_t pid) {
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

}  // namespace hdt::testing
