// small_file.cc: see small_file.h.
#include "training/checkpoint/small_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/unique_fd.h"

namespace hdt::training {

Result<std::string> read_small_file(const std::string& path, size_t most) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return Status::from_errno("cannot open " + path, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return Status::from_errno("cannot stat " + path, errno);
  if (!S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) > most) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} is not a regular file of at most {} bytes", path, most));
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  for (size_t at = 0; at < text.size();) {
    const ssize_t count = ::pread(file.get(), text.data() + at, text.size() - at, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Status::from_errno("cannot read " + path, errno);
    if (count == 0) return Status(Code::kInvalidArgument, path + ": the file was cut while it was read");
    at += static_cast<size_t>(count);
  }
  return text;
}

}  // namespace hdt::training
