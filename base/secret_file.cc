// secret_file.cc: reads and makes files with keys. Reading opens the file once and checks the open file,
// so the file that is checked is the one that is read. Making writes a temporary file beside the final
// one and links it to its name when it is whole.
#include "base/secret_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/hmac.h"
#include "base/signing.h"
#include "base/unique_fd.h"
#include "base/users.h"

namespace hdt {

namespace {

constexpr mode_t kOthers = S_IRWXO | S_IRWXG;
constexpr size_t kClusterKeyBytes = 32;

}  // namespace

Result<std::string> read_secret_file(const std::string& path, size_t most_bytes, bool* missing) {
  if (missing != nullptr) *missing = false;
  const auto wrong = [&path](const std::string& what) { return Status(Code::kConfig, path + ": " + what); };
  // O_NONBLOCK: opening a pipe by mistake must not wait for a writer.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) {
    if (missing != nullptr) *missing = errno == ENOENT;
    return wrong(fmt::format("cannot be read: {}", std::strerror(errno)));
  }
  // The checks below are of the open file, not of the path, which could be exchanged in between.
  struct stat info {};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return wrong("expected a regular file");
  // In a user namespace the number 0 is the namespace's root, who is trusted there.
  if (info.st_uid != 0 && !is_this_user(info.st_uid)) {
    return wrong(
        fmt::format("it belongs to user {}, who can change it: chown {} {}", info.st_uid, ::geteuid(), path));
  }
  // A daemon that does not run as root reads a key of root by its group.
  const mode_t allowed = info.st_uid == 0 ? S_IRGRP : 0;
  if ((info.st_mode & kOthers & ~allowed) != 0) {
    return wrong(
        fmt::format("it has mode {:04o}, so others than its owner can read or write it: chmod 600 {}",
                    info.st_mode & 07777, path));
  }
  // One byte more than allowed, so that a longer file is noticed.
  std::string text(most_bytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return wrong(fmt::format("cannot be read: {}", std::strerror(errno)));
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > most_bytes) return wrong(fmt::format("expected at most {} bytes", most_bytes));
  text.resize(size);
  // Editors and `echo` end a file with a line's end, which is no part of the key.
  while (!text.empty() && std::strchr(" \t\r\n", text.back()) != nullptr) text.pop_back();
  return text;
}

Status make_secret_file(const std::string& path, const std::string& text) {
  auto file = AtomicFile::create(path, S_IRUSR | S_IWUSR);
  if (!file.is_ok()) return file.status();
  HDT_RETURN_IF_ERROR(file.value()->write(text.data(), text.size()));
  return file.value()->commit_new();
}

Result<std::string> new_cluster_key() {
  std::array<uint8_t, kClusterKeyBytes> key{};
  HDT_RETURN_IF_ERROR(random_bytes(key));
  return hex_text(key) + "\n";
}

}  // namespace hdt
