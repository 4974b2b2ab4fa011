// child_process.h: processes started by the benchmark, waited for with a deadline and ended by process id.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "bench/commbench/options.h"

namespace hdt::bench {

struct Child {
  std::string name;  // for messages
  pid_t pid = -1;
  int pid_fd = -1;  // readable when the process has ended; -1 when that has been seen
};

// Watches a process that was just forked; kills it if that fails.
Result<Child> watch(std::string name, pid_t pid);

// Takes the ended child's exit code; says what happened if it was a signal.
int reap(Child& child);

// Kills and reaps those that have not ended.
void end_all(std::vector<Child>& children);

// The greatest of their exit codes; 1 where one was lost or had to be ended. options.time_limit_s bounds the
// whole; after the first has ended the others have one operation's deadline and a little more.
int wait_for_all(std::vector<Child>& children, const Options& options);

}  // namespace hdt::bench
