// command.h: runs a program to its end and returns what it printed; bounded in time and in output.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"

namespace hdt::training {

struct CommandLimits {
  std::chrono::milliseconds time{30000};
  size_t output_bytes = size_t{64} << 20;  // of stdout and stderr together
};

struct CommandOutput {
  int exit_code = 0;  // 128 + signal when a signal ended it
  std::string out;
  std::string err;
};

// `arguments` starts with the program, found through PATH; no shell is involved, stdin is empty. Beyond a
// limit the program and what it started in its process group are killed, and kTimeout or kSystem is returned.
Result<CommandOutput> run_command(const std::vector<std::string>& arguments,
                                  const CommandLimits& limits = {});

}  // namespace hdt::training
