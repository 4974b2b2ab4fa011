// command.cc: posix_spawn with two pipes and a pidfd. The parent reads both pipes at the same time,
// because a program that fills one of them while nobody reads would wait for ever.
#include "training/data/command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

extern char** environ;

namespace hdt::training {
namespace {

using Clock = std::chrono::steady_clock;

// A descriptor with one owner.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  void set(int number) {
    close();
    number_ = number;
  }
  void close() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }
  int get() const { return number_; }

 private:
  int number_;
};

// Both ends are close-on-exec: the child gets copies by dup2.
struct Pipe {
  Descriptor read;
  Descriptor write;
  Status open() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return Status::from_errno("cannot make a pipe", errno);
    read.set(ends[0]);
    write.set(ends[1]);
    return Status::ok();
  }
};

// Starts the program in a process group of its own, so that it can be killed with what it has started.
// Returns its pid.
Result<pid_t> spawn(const std::vector<std::string>& arguments, int out, int err) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return Status::from_errno("cannot run '" + arguments[0] + "'", error);
  return pid;
}

// Reads both pipes and waits for the end of the program, until the deadline. The pipes may stay open
// after the program's end, in processes that it has started; these count as part of it.
Status collect(const std::string& name, int pidfd, Pipe& out, Pipe& err, const CommandLimits& limits,
               CommandOutput& output) {
  const auto deadline = Clock::now() + limits.time;
  std::array<pollfd, 3> polled = {
      {{out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}, {pidfd, POLLIN, 0}}};
  const std::array<std::string*, 2> texts = {&output.out, &output.err};
  // A negative descriptor is one that is done: poll passes over it.
  while (std::any_of(polled.begin(), polled.end(), [](const pollfd& entry) { return entry.fd >= 0; })) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int ready = left <= 0 ? 0 : ::poll(polled.data(), polled.size(), static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return Status::from_errno("cannot wait for '" + name + "'", errno);
    // Neither pipe nor program has done anything before the deadline.
    if (ready == 0) {
      return {Code::kTimeout, "'" + name + "' did not end within " + std::to_string(limits.time.count()) +
                                  " ms and was killed"};
    }
    for (size_t i = 0; i < texts.size(); ++i) {
      if (polled[i].fd < 0 || polled[i].revents == 0) continue;
      char buffer[65536];
      const ssize_t count = ::read(polled[i].fd, buffer, sizeof(buffer));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Status::from_errno("cannot read the output of '" + name + "'", errno);
      if (count == 0) polled[i].fd = -1;  // the end of the output
      texts[i]->append(buffer, static_cast<size_t>(count));
      if (output.out.size() + output.err.size() > limits.output_bytes) {
        return {Code::kSystem, "'" + name + "' printed more than " + std::to_string(limits.output_bytes) +
                                   " bytes and was killed"};
      }
    }
    // The program has ended. Its output may still be in the pipes, so the loop goes on until these end, too.
    if (polled[2].revents != 0) polled[2].fd = -1;
  }
  return Status::ok();
}

}  // namespace

Result<CommandOutput> run_command(const std::vector<std::string>& arguments, const CommandLimits& limits) {
  // 1. Pipes, then the program.
  Pipe out;
  Pipe err;
  HDT_RETURN_IF_ERROR(out.open());
  HDT_RETURN_IF_ERROR(err.open());
  const auto pid = spawn(arguments, out.write.get(), err.write.get());
  if (!pid.is_ok()) return pid.status();
  // The parent's copies of the writing ends must be closed, or the pipes would never end.
  out.write.close();
  err.write.close();

  // 2. Its output and its end, or a limit.
  CommandOutput output;
  // By system call number, because the header of glibc 2.36 declares pidfd_open without C linkage. The
  // pid cannot belong to another process yet, as nobody has waited for the child.
  const Descriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid.value(), 0)));
  const Status status = pidfd.get() < 0 ? Status::from_errno("cannot watch '" + arguments[0] + "'", errno)
                                        : collect(arguments[0], pidfd.get(), out, err, limits, output);
  // 3. Beyond a limit the whole process group is killed: the program's id is the group's.
  if (!status.is_ok()) ::kill(-pid.value(), SIGKILL);
  // The child is waited for in any case, so that no zombie stays.
  int wait_status = 0;
  while (::waitpid(pid.value(), &wait_status, 0) < 0 && errno == EINTR) {
  }
  if (!status.is_ok()) return status;
  output.exit_code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
  return output;
}

}  // namespace hdt::training
