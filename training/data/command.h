// command.h: runs a program to its end and returns what it printed, within limits of time and of output.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"

namespace hdt::training {

// Beyond either limit the program is killed.
struct CommandLimits {
  std::chrono::milliseconds time{30000};
  size_t output_bytes = size_t{64} << 20;  // of stdout and stderr together
};

// The result of a program that ended.
struct CommandOutput {
  int exit_code = 0;  // 128 + signal if a signal ended it
  std::string out;
  std::string err;
};

// Runs `arguments`, which begin with the program, found through PATH. No shell is involved, and stdin is
// empty. The call blocks. kTimeout: the time is over; kSystem: too much output, or the program cannot be
// run. In both cases the program and what it started in its process group are killed. An exit code other
// than 0 is no failure.
Result<CommandOutput> run_command(const std::vector<std::string>& arguments,
                                  const CommandLimits& limits = {});

}  // namespace hdt::training
