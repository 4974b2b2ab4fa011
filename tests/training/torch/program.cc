// program.cc: popen, timeout(1) and a temporary directory.
#include "tests/training/torch/program.h"

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace hdt::training::testing {

ProgramResult run_program(const std::string& command, int seconds) {
  const std::string limited = "timeout " + std::to_string(seconds) + " " + command + " 2>&1";
  FILE* pipe = popen(limited.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot start: " + limited);
  ProgramResult result;
  std::array<char, 4096> buffer;
  size_t count = 0;
  while ((count = fread(buffer.data(), 1, buffer.size(), pipe)) > 0)
    result.output.append(buffer.data(), count);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) result.exit_status = WEXITSTATUS(status);
  return result;
}

std::vector<double> read_losses(const std::string& path) {
  std::vector<double> losses;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) losses.push_back(nlohmann::json::parse(line).at("loss"));
  return losses;
}

ScratchDirectory::ScratchDirectory()
    : path_((std::filesystem::temp_directory_path() / "hdt-train-test-XXXXXX").string()) {
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make " + path_);
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;  // a test must not fail for what it leaves in /tmp
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace hdt::training::testing
