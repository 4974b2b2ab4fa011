// daemon_finder.cc: finding or hosting a daemon. The sessions are kept by weak pointers: a session ends
// with its last communicator, and the next group opens a new one.
//
// For an embedded daemon many processes of a node do this at the same time. Each tries to connect, and,
// if nobody answers, to become the host; the lock of host_lock.h lets one of them succeed. The others
// find its daemon at their next attempt.
#include "libclient/daemon_client/daemon_finder.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>

#include "base/clock.h"
#include "base/config.h"
#include "base/fork_mark.h"
#include "base/join.h"
#include "base/log.h"
#include "libclient/daemon_client/embedded_hosts.h"
#include "libclient/daemon_client/runtime_folder.h"
#include "libclient/launch/environment.h"

namespace hdt::client {

namespace {

// How long a process tries to find or become the host of an embedded daemon, in ms.
constexpr int64_t kHostMs = 15'000;
// Processes that go on with the groups of a host that has ended take its place before a process that has
// just come, since they know its settings. So the latter waits this long, in ms.
constexpr int64_t kPrecedenceMs = 300;
// Between two attempts, in us.
constexpr int64_t kLookUs = 5'000;

// The sessions of this process, by the path of the socket.
struct Finder {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Session>> sessions;
};

Finder& finder() {
  // Never destroyed, as sessions outlive static objects.
  static Finder& instance = *new Finder();
  return instance;
}

// The session at that socket, opened if needed. The mutex is held, so that two threads do not open two.
Result<std::shared_ptr<Session>> shared_session(
    Finder& all, const std::string& socket, int64_t timeout_ms,
    const std::function<std::function<void()>()>& become_host = {}) {
  if (auto open = all.sessions[socket].lock(); open != nullptr && !open->failed()) return open;
  auto session = Session::open(socket, become_host, timeout_ms);
  if (session.is_ok()) all.sessions[socket] = session.value();
  return session;
}

// For a session with the embedded daemon that runs now: the function that makes this process the host of
// the next one, if no other is (Session::open()). It also registers what has to be done at the end of
// the process.
std::function<void()> successor_of(const RuntimePlace& place) {
  EmbeddedHosts& hosts = EmbeddedHosts::instance();
  const std::string socket = place.base + ".sock";
  hosts.use(place, [socket] {
    Finder& all = finder();
    // A thread that still looks for a daemon is not waited for: the process ends.
    const std::unique_lock lock(all.mutex, std::try_to_lock);
    if (!lock.owns_lock()) return;
    if (const auto open = all.sessions[socket].lock()) open->close();
  });
  // The present host's settings are remembered: the file may be removed when they are needed. If the host
  // has not written them yet, they are read again later.
  auto settings = std::make_shared<std::string>(hosts.settings_of(place));
  auto failed = std::make_shared<bool>(false);
  return [place, settings, failed] {
    if (*failed) return;
    if (settings->empty()) *settings = EmbeddedHosts::instance().settings_of(place);
    const Status became = EmbeddedHosts::instance().become(place, *settings);
    // After a real failure it is not tried again; another process may succeed. kInProgress is no
    // failure: another process is the host or becomes it.
    *failed = !became.is_ok() && became.code() != Code::kInProgress;
    if (*failed) HDT_LOG_WARN("this process cannot host the node's daemon: {}", became.message());
  };
}

// Each turn: connect, and if nobody answers become the host, until the deadline.
Result<std::shared_ptr<Session>> embedded_session(Finder& all, const std::string& node, int64_t timeout_ms) {
  const auto found = runtime_place(environment_text, node);
  if (!found.is_ok()) return found.status();
  const RuntimePlace& place = found.value();
  const std::string socket = place.base + ".sock";
  EmbeddedHosts& hosts = EmbeddedHosts::instance();
  const Deadline deadline = Deadline::after_ms(std::min(kHostMs, timeout_ms));
  Deadline others_first = Deadline::never();
  pid_t holder = 0;
  Status last;
  while (!deadline.expired()) {
    auto session = shared_session(all, socket, deadline.remaining_ns() / kNsPerMs + 1,
                                  [&] { return successor_of(place); });
    if (session.is_ok()) return session;
    last = session.status();
    // These do not get better by waiting.
    if (last.code() == Code::kVersion || last.code() == Code::kSystem) return last;
    // Settings without a daemon mean that a host has ended, and that others may be about to take its
    // place.
    if (others_first.is_never()) {
      const bool one_has_ended = !hosts.settings_of(place).empty();
      others_first = Deadline::after_ms(one_has_ended ? kPrecedenceMs : 0);
    }
    if (others_first.expired()) {
      const Status became = hosts.become(place, "", &holder);
      // The next turn connects to our own daemon.
      if (became.is_ok()) continue;
      if (became.code() != Code::kInProgress) return became;
    }
    ::usleep(kLookUs);
  }
  // The last process that was seen to hold the lock is likely the one that hangs.
  const std::string who =
      holder == 0 ? ""
                  : "process " + std::to_string(holder) + " hosts it and does not answer (is it stopped?): ";
  return Status(Code::kNoDaemon,
                "no embedded daemon could be started or reached at " + socket + ": " + who + last.message());
}

}  // namespace

Result<std::shared_ptr<Session>> find_daemon(const std::string& asked, int64_t timeout_ms) {
  Finder& all = finder();
  const std::lock_guard lock(all.mutex);
  const std::string socket = asked.empty() ? environment_text("HDT_SOCKET") : asked;
  // 1. A socket is asked for.
  if (!socket.empty()) {
    auto session = shared_session(all, socket, timeout_ms);
    if (session.is_ok() || session.status().code() != Code::kNoDaemon) return session;
    return Status(Code::kNoDaemon, session.status().message() + "; start hdtcommd --node.socket " + socket +
                                       ", or unset HDT_SOCKET to use the system's or an embedded daemon");
  }
  // 2. The system's daemon.
  const std::string node = environment_text("HDT_NODE_NAME");
  if (node.empty()) {
    const std::string system = Config().node.socket;
    auto session = shared_session(all, system, timeout_ms);
    if (session.is_ok() || session.status().code() != Code::kNoDaemon) return session;
    // A socket without a daemon is worth a warning: the user may expect that daemon.
    if (::access(system.c_str(), F_OK) == 0) {
      HDT_LOG_WARN("{}; an embedded daemon is used instead", session.status().message());
    }
  }
  // 3. An embedded one.
  return embedded_session(all, node, timeout_ms);
}

Result<std::string> find_socket() {
  const std::string node = environment_text("HDT_NODE_NAME");
  const std::string system = Config().node.socket;
  if (node.empty() && ::access(system.c_str(), F_OK) == 0) return system;
  const auto embedded = embedded_sockets(environment_text, node);
  if (!embedded.is_ok()) return embedded.status();
  const std::vector<std::string>& found = embedded.value();
  if (found.size() == 1) return found.front();
  const std::string of_node = node.empty() ? "" : " of node " + node;
  if (!found.empty()) {
    return Status(Code::kNoDaemon,
                  "processes of this user host several daemons" + of_node + ": " + join(found, ", "));
  }
  return Status(Code::kNoDaemon,
                node.empty() ? "no daemon runs here, neither at " + system + " nor in a process of this user"
                             : "no process of this user hosts a daemon" + of_node);
}

}  // namespace hdt::client
