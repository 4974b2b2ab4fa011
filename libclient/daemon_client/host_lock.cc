// host_lock.cc: the lock file. A reader may come while the holder writes, so the text ends with a mark
// that shows that all of it is there.
#include "libclient/daemon_client/host_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

namespace hdt::client {

namespace {

// The maximum of a text that is read, in bytes: a configuration as TOML.
constexpr size_t kMaxText = size_t{1} << 16;
// A comment of TOML.
constexpr const char* kEnd = "# end\n";

// A lock of fcntl() on the whole file, whatever its length.
struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

Result<HostLock> HostLock::take(const std::string& path, pid_t* holder) {
  if (holder != nullptr) *holder = 0;
  // O_NOFOLLOW: a link in the folder leads nowhere. 0600: the settings are the user's.
  UniqueFd fd(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid() && errno == ENOENT)
    // A process that ended has removed it; the next attempt makes it again.
    return Status(Code::kInProgress, "the folder of " + path + " was removed");
  if (!fd.valid()) return Status::from_errno("cannot open " + path, errno);
  struct flock lock = whole_file(F_WRLCK);
  if (::fcntl(fd.get(), F_SETLK, &lock) != 0) {
    if (errno != EAGAIN && errno != EACCES) return Status::from_errno("cannot lock " + path, errno);
    // The holder may give the lock up between the two calls; then there is no pid to name.
    struct flock held = whole_file(F_WRLCK);
    if (holder != nullptr && ::fcntl(fd.get(), F_GETLK, &held) == 0 && held.l_type != F_UNLCK)
      *holder = held.l_pid;
    return Status(Code::kInProgress, "another process has the lock on " + path);
  }
  // The holder before may have removed the file between our open() and our lock. Then another process
  // can lock a new file at the path, and our lock is worth nothing.
  struct stat mine {};
  struct stat there {};
  if (::fstat(fd.get(), &mine) != 0 || ::stat(path.c_str(), &there) != 0 || mine.st_dev != there.st_dev ||
      mine.st_ino != there.st_ino) {
    return Status(Code::kInProgress, path + " was removed");
  }
  return HostLock(path, std::move(fd));
}

Status HostLock::write(const std::string& text) {
  // The mark comes last: a reader that comes in between sees that something is missing.
  const std::string all = text + kEnd;
  if (::ftruncate(fd_.get(), 0) != 0 ||
      ::pwrite(fd_.get(), all.data(), all.size(), 0) != static_cast<ssize_t>(all.size()))
    return Status::from_errno("cannot write " + path_, errno);
  return Status::ok();
}

std::string HostLock::read(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  std::string text(kMaxText, 0);
  const ssize_t got = fd.valid() ? ::pread(fd.get(), text.data(), text.size(), 0) : 0;
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  const std::string_view end = kEnd;
  return text.ends_with(end) ? text.substr(0, text.size() - end.size()) : "";
}

void HostLock::remove() {
  // Unlinked while the lock is held: a process that takes the lock of this file afterwards finds another
  // file, or none, at the path.
  (void)::unlink(path_.c_str());
  fd_.reset();
}

}  // namespace hdt::client
