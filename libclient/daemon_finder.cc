#include "libclient/daemon_finder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <mutex>

#include "base/clock.h"
#include "base/config.h"
#include "base/fork_mark.h"
#include "base/log.h"
#include "base/users.h"
#include "daemon/embedded.h"

namespace hdt::client {

namespace {

constexpr int64_t kHostMs = 15'000;    // to find or become the host of an embedded daemon
constexpr int64_t kLingerMs = 60'000;  // a host waits this long at its end for those who still use its daemon
constexpr int64_t kLingerQuietMs = 1'000;

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? "" : value;
}

// The embedded daemon of this process, if it hosts one. Lives until the process exits.
struct Host {
  UniqueFd lock;
  std::unique_ptr<daemon::EmbeddedDaemon> daemon;
  std::string socket;

  ~Host() {
    if (daemon == nullptr) return;
    if (!daemon->wait_until_unused(kLingerQuietMs)) {
      HDT_LOG_WARN("waiting for {} process(es) that use the daemon in this process (at most {} s)",
                   daemon->foreign_sessions(), kLingerMs / 1000);
      (void)daemon->wait_until_unused(kLingerMs);
    }
    daemon->stop("the process that hosted the embedded daemon ended");
  }
};

struct Finder {
  std::mutex mutex;
  Host host;  // destroyed after the sessions, which use it
  std::map<std::string, std::weak_ptr<Session>> sessions;
};

Finder& finder() {
  static KeptInCopies<Finder> instance;
  return *instance;
}

Result<std::shared_ptr<Session>> shared_session(Finder& all, const std::string& socket) {
  if (auto open = all.sessions[socket].lock(); open != nullptr && !open->lost()) return open;
  auto session = Session::open(socket);
  if (session.is_ok()) all.sessions[socket] = session.value();
  return session;
}

// A folder that only this user can write to: others cannot put a daemon of theirs in our way.
Result<std::string> private_folder() {
  if (!this_user_has_a_number()) {
    return Status(
        Code::kSystem,
        "the user of this process has no number in its user namespace, and nothing tells a folder of it from "
        "one of others: map the user (unshare --map-current-user), or set HDT_SOCKET to a daemon's socket");
  }
  const std::string runtime = variable("XDG_RUNTIME_DIR");
  const std::string folder = runtime.empty() ? "/tmp/hdt-" + std::to_string(::geteuid()) : runtime + "/hdt";
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return Status::from_errno("cannot make " + folder, errno);
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0) return Status::from_errno("cannot look at " + folder, errno);
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 077) != 0) {
    return Status(Code::kSystem, folder + " must be a folder of user " + std::to_string(::geteuid()) +
                                     " with mode 0700: remove it, or set XDG_RUNTIME_DIR");
  }
  return folder;
}

Result<std::shared_ptr<Session>> embedded_session(Finder& all, const std::string& node) {
  const auto folder = private_folder();
  if (!folder.is_ok()) return folder.status();
  const std::string base = folder.value() + "/" + (node.empty() ? "node" : node);
  const std::string socket = base + ".sock";
  const Deadline deadline = Deadline::after_ms(kHostMs);
  Status last;
  while (!deadline.expired()) {
    auto session = shared_session(all, socket);
    if (session.is_ok()) return session;
    last = session.status();
    if (last.code() == Code::kVersion) return last;
    // Whoever holds the lock is the host, or becomes it. It is kept until the process ends.
    UniqueFd lock(::open((base + ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    if (!lock.valid()) return Status::from_errno("cannot open " + base + ".lock", errno);
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      ::usleep(5'000);
      continue;
    }
    auto daemon = daemon::start_embedded(socket);
    if (!daemon.is_ok()) return daemon.status();
    HDT_LOG_INFO("no hdtcommd found: a daemon for this node runs inside process {} at {}", ::getpid(),
                 socket);
    all.host.lock = std::move(lock);
    all.host.daemon = daemon.take();
    all.host.socket = socket;
  }
  return Status(Code::kNoDaemon,
                "no embedded daemon could be started or reached at " + socket + ": " + last.message());
}

}  // namespace

Result<std::shared_ptr<Session>> find_daemon(const std::string& asked) {
  Finder& all = finder();
  const std::lock_guard lock(all.mutex);
  const std::string socket = asked.empty() ? variable("HDT_SOCKET") : asked;
  if (!socket.empty()) {
    auto session = shared_session(all, socket);
    if (session.is_ok() || session.status().code() != Code::kNoDaemon) return session;
    return Status(Code::kNoDaemon, session.status().message() + "; start hdtcommd --node.socket " + socket +
                                       ", or unset HDT_SOCKET to use the system's or an embedded daemon");
  }
  const std::string node = variable("HDT_NODE_NAME");
  if (node.empty()) {
    const std::string system = Config().node.socket;
    auto session = shared_session(all, system);
    if (session.is_ok() || session.status().code() != Code::kNoDaemon) return session;
    if (::access(system.c_str(), F_OK) == 0) {
      HDT_LOG_WARN("{}; an embedded daemon is used instead", session.status().message());
    }
  }
  return embedded_session(all, node);
}

}  // namespace hdt::client
