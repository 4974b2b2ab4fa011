// runtime_folder.cc: names and checks of the folder for embedded daemons.
#include "libclient/daemon_client/runtime_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>

#include "base/hmac.h"
#include "base/log.h"
#include "base/signing.h"
#include "base/users.h"

namespace hdt::client {

namespace {

// A socket's path without its closing zero, in bytes; the endings of files; the part of a digest in a
// name.
constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;
constexpr size_t kSuffix = 5;  // ".sock"
constexpr size_t kMarkBytes = 6;

// A short mark that tells secrets apart and reveals nothing of them. The name of a file can be read by
// others.
Result<std::string> mark_of_secret(const std::string& secret) {
  const std::string text = "HDT runtime place " + secret;
  const auto digest = sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  if (!digest.is_ok()) return digest.status();
  return hex_text(std::span(digest.value()).first(kMarkBytes));
}

// Whether the socket's path would not fit.
bool too_long(const std::string& base) { return base.size() + kSuffix > kMaxPath; }

// Why a folder that was made by others cannot hold ours; "": it can.
std::string unfit(const std::string& path) {
  struct stat info {};
  if (path.front() != '/') return "is not an absolute path";
  if (::stat(path.c_str(), &info) != 0) return std::strerror(errno);
  if (!S_ISDIR(info.st_mode)) return "is not a folder";
  // sudo and su keep the variable of the user who calls them.
  if (info.st_uid != ::geteuid())
    return fmt::format("belongs to user {}, and this is user {}", info.st_uid, ::geteuid());
  if (::access(path.c_str(), W_OK | X_OK) != 0)
    return fmt::format("cannot be written to: {}", std::strerror(errno));
  return {};
}

// kInProgress: it is not there.
Status check_runtime_folder(const std::string& folder) {
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0) {
    if (errno == ENOENT) return {Code::kInProgress, folder + " was removed"};  // by one that ended
    return Status::from_errno("cannot look at " + folder, errno);
  }
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 077) != 0) {
    return {Code::kSystem, fmt::format("{} must be a folder of user {} with mode 0700, and is {} of user {} "
                                       "with mode {:04o}: remove it, or set "
                                       "XDG_RUNTIME_DIR to a folder of this user",
                                       folder, ::geteuid(), S_ISDIR(info.st_mode) ? "a folder" : "none",
                                       info.st_uid, info.st_mode & 07777)};
  }
  return Status::ok();
}

}  // namespace

Result<RuntimePlace> runtime_place(const GetText& variable, const std::string& node) {
  // 1. The name of the files.
  std::string name = node.empty() ? "node" : node;
  if (name.find('/') != std::string::npos) {
    return Status(Code::kConfig,
                  fmt::format("environment HDT_NODE_NAME: expected a name without '/', found \"{}\"", name));
  }
  // Without a number of its own, nothing tells a folder of this user from one of others.
  if (!this_user_has_a_number()) {
    return Status(
        Code::kSystem,
        "the user of this process has no number in its user namespace, and nothing tells a folder of it from "
        "one of others: map the user (unshare --map-current-user), or set HDT_SOCKET to a daemon's socket");
  }
  // Daemons that know each other by their job's secret serve this job only.
  if (const std::string secret = job_secret(variable); !secret.empty()) {
    const auto mark = mark_of_secret(secret);
    if (!mark.is_ok()) return mark.status();
    name += "-" + mark.value();
  }
  // 2. The folder. The path in /tmp must fit in any case: it is the one to fall back to.
  const std::string temporary = fmt::format("/tmp/hdt-{}", ::geteuid());
  if (too_long(temporary + "/" + name)) {
    return Status(Code::kConfig,
                  fmt::format("environment HDT_NODE_NAME: expected at most {} bytes, found {}: \"{}\"",
                              kMaxPath - kSuffix - temporary.size() - 1, name.size(), name.substr(0, 256)));
  }
  const std::string runtime = variable("XDG_RUNTIME_DIR");
  if (runtime.empty()) return RuntimePlace{temporary, temporary + "/" + name};
  const std::string folder = runtime + "/hdt";
  std::string wrong = unfit(runtime);
  if (wrong.empty() && too_long(folder + "/" + name)) {
    wrong = fmt::format("makes a socket's path of more than {} bytes", kMaxPath);
  }
  if (wrong.empty()) return RuntimePlace{folder, folder + "/" + name};
  // Another rank of the same user with the same variable comes to the same place, so this is no error.
  HDT_LOG_WARN(
      "XDG_RUNTIME_DIR={} {}: {} is used for this node's daemon instead; unset it, or set it to a folder of "
      "this user",
      runtime.substr(0, 256), wrong, temporary);
  return RuntimePlace{temporary, temporary + "/" + name};
}

// The folder may be made by several processes at a time, and by another user before them. So it is made
// first, and then checked without following a link.
Status make_runtime_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) == 0) {
    // Whatever the umask has left of the mode.
    if (::chmod(folder.c_str(), 0700) != 0) return Status::from_errno("chmod of " + folder, errno);
  } else if (errno != EEXIST) {
    return Status::from_errno("cannot make the folder " + folder + " for this node's daemon", errno);
  }
  return check_runtime_folder(folder);
}

// Foreign sockets are not looked at: a folder that others could write to is refused. A socket is this node's
// if nothing but a secret's mark follows the name.
Result<std::vector<std::string>> embedded_sockets(const GetText& variable, const std::string& node) {
  const auto place = runtime_place(variable, node);
  if (!place.is_ok()) return place.status();
  const Status usable = check_runtime_folder(place.value().folder);
  if (usable.code() == Code::kInProgress) return std::vector<std::string>();
  HDT_RETURN_IF_ERROR(usable);
  std::vector<std::string> found;
  std::error_code ended;  // the last daemon removes the folder
  for (std::filesystem::directory_iterator entry(place.value().folder, ended), end; !ended && entry != end;
       entry.increment(ended)) {
    const std::filesystem::path& path = entry->path();
    const std::string stem = path.stem();
    const bool marked = stem.size() == node.size() + 1 + 2 * kMarkBytes && stem.starts_with(node + "-");
    if (path.extension() == ".sock" && (node.empty() || stem == node || marked)) found.push_back(path);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace hdt::client
