// atomic_file.cc: the system calls behind atomic_file.h, in the order that makes a file durable: write,
// fsync of the file, rename, fsync of the folder.
#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

namespace hdt {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;  // after so many the buffer is written out
constexpr int kNameAttempts = 100;                // temporary names that may be taken

// Makes the rename itself durable: a name is contents of its folder.
Status sync_folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return sync_folder(slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash));
}

}  // namespace

Status sync_folder(const std::string& folder) {
  const UniqueFd descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.valid()) return Status::from_errno("cannot open the folder " + folder, errno);
  const int error = ::fsync(descriptor.get()) == 0 ? 0 : errno;
  // Some file systems cannot sync a folder and say EINVAL: there the rename is as durable as it gets.
  if (error != 0 && error != EINVAL) return Status::from_errno("cannot sync the folder " + folder, error);
  return Status::ok();
}

Result<std::unique_ptr<AtomicFile>> AtomicFile::create(const std::string& path, mode_t mode) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return Status(Code::kInvalidArgument, "cannot write " + path + ": it exists and is not a regular file");
  }
  // A number for each file of this process, as several threads may write beside each other.
  static std::atomic<uint64_t> counter{0};
  auto file = std::unique_ptr<AtomicFile>(new AtomicFile);
  file->path_ = path;
  for (int attempt = 0; attempt < kNameAttempts; ++attempt) {
    std::string name = path + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(counter++);
    // O_EXCL also refuses a link that somebody has prepared at the name.
    file->descriptor_ = UniqueFd(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (file->descriptor_.valid()) {
      file->temporary_ = std::move(name);
      return file;
    }
    // EEXIST: the name is left from a process with our pid that was killed; the next number is tried.
    if (errno != EEXIST) break;
  }
  return Status::from_errno("cannot create " + path, errno);
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status AtomicFile::write(const void* bytes, size_t count) {
  buffer_.append(static_cast<const char*>(bytes), count);
  return buffer_.size() >= kBufferBytes ? write_out() : Status::ok();
}

Status AtomicFile::write_out() {
  size_t written = 0;
  while (written < buffer_.size()) {
    const ssize_t count = ::write(descriptor_.get(), buffer_.data() + written, buffer_.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Status::from_errno("cannot write " + temporary_, errno);
    written += static_cast<size_t>(count);
  }
  buffer_.clear();
  return Status::ok();
}

Status AtomicFile::sync() {
  HDT_RETURN_IF_ERROR(write_out());
  if (::fsync(descriptor_.get()) != 0) return Status::from_errno("cannot sync " + temporary_, errno);
  return Status::ok();
}

// The order matters: a rename before the sync could leave an empty file after a crash.
Status AtomicFile::commit() {
  HDT_RETURN_IF_ERROR(sync());
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return Status::from_errno("cannot rename " + temporary_ + " to " + path_, errno);
  }
  temporary_.clear();
  return sync_folder_of(path_);
}

// link() fails if the name exists; rename() would replace what is there. The temporary name goes with this
// object.
Status AtomicFile::commit_new() {
  HDT_RETURN_IF_ERROR(sync());
  if (::link(temporary_.c_str(), path_.c_str()) != 0) {
    if (errno != EEXIST) return Status::from_errno("cannot make " + path_, errno);
    return {Code::kInvalidUsage,
            path_ + " exists already, and is not overwritten: move it away, or name another file"};
  }
  return sync_folder_of(path_);
}

// Creates the temporary file, which is removed at once. Space on the disk is not checked.
Status check_writable(const std::string& path) { return AtomicFile::create(path).status(); }

Status write_file_atomically(const std::string& path, std::string_view contents, mode_t mode) {
  auto file = AtomicFile::create(path, mode);
  if (!file.is_ok()) return file.status();
  HDT_RETURN_IF_ERROR(file.value()->write(contents.data(), contents.size()));
  return file.value()->commit();
}

}  // namespace hdt
