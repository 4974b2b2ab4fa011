// child_process.h: processes that the benchmark has started. They are waited for with a deadline, and
// ended by their process id.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "bench/commbench/options.h"

namespace hdt::bench {

// A process that was forked by this one. It must be reaped once.
struct Child {
  std::string name;  // for messages
  pid_t pid = -1;
  // A pid file descriptor: readable when the process has ended. -1 when it has been reaped.
  int pid_fd = -1;
};

// Takes over a process that was just forked. If it cannot be watched, kills and reaps it, and returns
// the error.
Result<Child> watch(std::string name, pid_t pid);

// Waits for the child's end and returns its exit code. If a signal has ended it, prints which one and
// returns 1.
int reap(Child& child);

// Kills and reaps all children that have not been reaped.
void end_all(std::vector<Child>& children);

// Waits for all children, and returns their largest exit code. A child that is late is killed, and the
// result is then at least 1. All of them must end within options.time_limit_s; when the first one has
// ended, the others have one operation's deadline and a little more.
int wait_for_all(std::vector<Child>& children, const Options& options);

}  // namespace hdt::bench
