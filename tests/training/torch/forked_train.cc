// forked_train.cc: fork(), a pipe for the output of the copies, and an end for those that are late.
#include "tests/training/torch/forked_train.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wordexp.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <vector>

#include "tests/free_port.h"
#include "tools/hdt-train/train_command.h"

namespace hdt::training::testing {
namespace {

constexpr int kLate = 124;  // as timeout(1) has it

// The variables of a launcher.
void become_rank(int rank, int ranks, int port) {
  ::setenv("RANK", std::to_string(rank).c_str(), 1);
  ::setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
}

[[noreturn]] void become_train(int output, wordexp_t& words) {
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::close(output);
  std::setvbuf(stdout, nullptr, _IOFBF, BUFSIZ);  // as of a program whose output is a pipe
  std::exit(tools::run_train_command(static_cast<int>(words.we_wordc), words.we_wordv));
}

// What comes until all have closed the pipe; false if that takes too long.
bool read_all(int pipe, int seconds, std::string& output) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  std::array<char, 4096> buffer;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd readable{pipe, POLLIN, 0};
    if (left <= 0 || ::poll(&readable, 1, static_cast<int>(left)) == 0) return false;
    const ssize_t count = ::read(pipe, buffer.data(), buffer.size());
    if (count <= 0) return true;
    output.append(buffer.data(), static_cast<size_t>(count));
  }
}

}  // namespace

ProgramResult run_forked_train(const std::string& flags, int seconds, int ranks) {
  wordexp_t words{};
  if (::wordexp(("hdt-train " + flags).c_str(), &words, WRDE_NOCMD) != 0)
    throw std::runtime_error("not the words of a command: " + flags);
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  const int port = ranks > 1 ? free_port() : 0;
  // What is buffered would be written by all.
  std::cout.flush();
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    if (child < 0) throw std::runtime_error("cannot fork");
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    ::close(ends[0]);
    if (ranks > 1) become_rank(rank, ranks, port);
    become_train(ends[1], words);
  }
  ::close(ends[1]);
  ::wordfree(&words);
  ProgramResult result;
  const bool in_time = read_all(ends[0], seconds, result.output);
  ::close(ends[0]);
  result.exit_status = in_time ? 0 : kLate;
  for (const pid_t child : children) {
    if (!in_time) ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (result.exit_status == 0) result.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  return result;
}

}  // namespace hdt::training::testing
