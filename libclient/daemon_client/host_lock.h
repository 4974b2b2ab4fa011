// host_lock.h: who hosts a node's embedded daemon: the process that holds the lock on a file beside the
// socket.
//
// It is a lock of fcntl(): a child of fork() does not hold it, exec() keeps it only with the descriptor,
// which is closed then, and the kernel takes it back when the process dies. But closing any descriptor of the
// file gives it up, too: a process that holds it never opens the file again. Whoever uses this keeps to that.
//
// The file is removed by its holder alone, and who has taken the lock looks whether the file is still the one
// at the path: so nobody holds a lock that others do not see.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/status.h"
#include "base/unique_fd.h"

namespace hdt::client {

class HostLock {
 public:
  // kInProgress: another process has it, `holder` says which, 0: one that this process cannot see, or none
  // any more.
  static Result<HostLock> take(const std::string& path, pid_t* holder = nullptr);
  HostLock(HostLock&&) = default;
  HostLock& operator=(HostLock&&) = default;

  // A text that other processes read; "" before the first.
  Status write(const std::string& text);
  // By a process that does not hold it. "": there is none, or not all of it yet.
  static std::string read(const std::string& path);
  // Removes the file. The lock is worth nothing afterwards.
  void remove();

 private:
  HostLock(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;
};

}  // namespace hdt::client
