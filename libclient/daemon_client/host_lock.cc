#include "libclient/daemon_client/host_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

namespace hdt::client {

namespace {

constexpr size_t kMaxText = size_t{1} << 16;
constexpr const char* kEnd = "# end\n";  // a comment of TOML: all of the text is there

struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

Result<HostLock> HostLock::take(const std::string& path, pid_t* holder) {
  if (holder != nullptr) *holder = 0;
  UniqueFd fd(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid() && errno == ENOENT)
    return Status(Code::kInProgress, "the folder of " + path + " was removed");
  if (!fd.valid()) return Status::from_errno("cannot open " + path, errno);
  struct flock lock = whole_file(F_WRLCK);
  if (::fcntl(fd.get(), F_SETLK, &lock) != 0) {
    if (errno != EAGAIN && errno != EACCES) return Status::from_errno("cannot lock " + path, errno);
    struct flock held = whole_file(F_WRLCK);
    if (holder != nullptr && ::fcntl(fd.get(), F_GETLK, &held) == 0 && held.l_type != F_UNLCK)
      *holder = held.l_pid;
    return Status(Code::kInProgress, "another process has the lock on " + path);
  }
  struct stat mine {};
  struct stat there {};
  if (::fstat(fd.get(), &mine) != 0 || ::stat(path.c_str(), &there) != 0 || mine.st_dev != there.st_dev ||
      mine.st_ino != there.st_ino) {
    return Status(Code::kInProgress, path + " was removed");
  }
  return HostLock(path, std::move(fd));
}

Status HostLock::write(const std::string& text) {
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
  (void)::unlink(path_.c_str());
  fd_.reset();
}

}  // namespace hdt::client
