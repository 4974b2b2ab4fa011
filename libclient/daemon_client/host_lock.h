// host_lock.h: which process hosts a node's embedded daemon: the one that holds the lock on a file
// beside the socket.
//
// It is a lock of fcntl(): a child of fork() does not hold it, exec() keeps it only with the descriptor,
// which is closed then, and the kernel takes it back when the process dies. But closing any descriptor
// of the file gives it up, too. So a process that holds it never opens the file again; every user of
// this class keeps to that.
//
// Only the holder removes the file, and a process that has taken the lock looks whether the file is
// still the one at the path. So nobody holds a lock that others do not see.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/status.h"
#include "base/unique_fd.h"

namespace hdt::client {

// Owns the descriptor, and with it the lock; gives the lock up when it is destroyed. Movable, not
// copyable. Not thread-safe.
class HostLock {
 public:
  // Takes the lock on the file at `path`, which is made if it is not there. Does not wait. kInProgress:
  // another process has it, or the file or its folder was just removed. `holder`, if not null, is set to
  // the holder's pid; 0: this process cannot see it, or there is none any more. kSystem: the file cannot
  // be made or locked.
  static Result<HostLock> take(const std::string& path, pid_t* holder = nullptr);
  HostLock(HostLock&&) = default;
  HostLock& operator=(HostLock&&) = default;

  // Replaces the file's text, which other processes read. kSystem: the file system refuses it.
  Status write(const std::string& text);
  // The text at `path`, by a process that does not hold the lock. "": there is no file, no text yet, or
  // not all of it.
  static std::string read(const std::string& path);
  // Removes the file, and gives the lock up. Nothing else may be called afterwards.
  void remove();

 private:
  HostLock(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;
};

}  // namespace hdt::client
