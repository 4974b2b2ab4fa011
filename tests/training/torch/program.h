// program.h: runs hdt-train as a user does, alone or under mpirun.
#pragma once

#include <string>
#include <vector>

namespace hdt::training::testing {

struct ProgramResult {
  int exit_status = -1;
  std::string output;  // stdout and stderr
};

// Through the shell, with a time limit (exit status 124 when it is over).
ProgramResult run_program(const std::string& command, int seconds);

// The "loss" of every line of a --loss-log.
std::vector<double> read_losses(const std::string& path);

// A directory that is removed with everything in it.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace hdt::training::testing
