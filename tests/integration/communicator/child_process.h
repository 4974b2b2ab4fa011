// child_process.h: a program started by a test, with pipes to talk to it. It never outlives the test.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace hdt::testing {

class ChildProcess {
 public:
  // The environment is the test's without HDT_* variables, plus `environment`. Standard error goes to
  // `error_file`.
  ChildProcess(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment,
               std::string error_file);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void say(const std::string& line);
  // The next line of standard output; nothing at the deadline or when the program has closed it.
  std::optional<std::string> read_line(const Deadline& deadline);
  // After SIGSTOP, none of its threads runs any more.
  void signal(int number);
  // Exit status, or 128 + the signal that ended it; nothing if it still runs at the deadline.
  std::optional<int> wait(const Deadline& deadline);
  std::string errors() const;

 private:
  pid_t pid_ = -1;
  std::optional<int> ended_;
  UniqueFd in_, out_, watch_;
  std::string buffered_;
  std::string error_file_;
};

}  // namespace hdt::testing
