// watched_command.h: a command with a limit of time. If it does not end, its output says what its processes
// were doing.
#pragma once

#include <cstdint>
#include <string>

namespace hdt::client::test {

struct Outcome {
  // That of a shell; -1: a signal or the limit ended it.
  int exit_code = -1;
  // Standard output and standard error, in the order in which they came. Behind them, if the command or a
  // process of it did not end: each process that lives, with the state and the backtrace of each thread.
  std::string output;
};

// Runs the command by sh. At the limit it is ended, with all processes that it has started, in whatever group
// or session they are. To be called on the only thread of a process that has no other children.
Outcome run_watched(const std::string& command, int64_t limit_ms);

}  // namespace hdt::client::test
