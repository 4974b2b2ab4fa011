#include "libclient/daemon_client/daemon_finder.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>

#include "base/clock.h"
#include "base/config.h"
#include "base/fork_mark.h"
#include "base/log.h"
#include "libclient/daemon_client/embedded_hosts.h"
#include "libclient/daemon_client/runtime_folder.h"
#include "libclient/launch/environment.h"

namespace hdt::client {

namespace {

constexpr int64_t kHostMs = 15'000;  // to find or become the host of an embedded daemon
// Processes that go on with the groups of a host that is gone take its place before one that has just come:
// they know its settings.
constexpr int64_t kPrecedenceMs = 300;
constexpr int64_t kLookUs = 5'000;

struct Finder {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Session>> sessions;
};

Finder& finder() {
  static Finder& instance = *new Finder();  // sessions outlive static objects
  return instance;
}

Result<std::shared_ptr<Session>> shared_session(
    Finder& all, const std::string& socket, int64_t timeout_ms,
    const std::function<std::function<void()>()>& become_host = {}) {
  if (auto open = all.sessions[socket].lock(); open != nullptr && !open->lost()) return open;
  auto session = Session::open(socket, become_host, timeout_ms);
  if (session.is_ok()) all.sessions[socket] = session.value();
  return session;
}

// For a session with the embedded daemon that runs now: makes this process the host of the next one, if no
// other is.
std::function<void()> successor_of(const RuntimePlace& place) {
  EmbeddedHosts& hosts = EmbeddedHosts::instance();
  const std::string socket = place.base + ".sock";
  hosts.use(place, [socket] {
    Finder& all = finder();
    const std::unique_lock lock(
        all.mutex, std::try_to_lock);  // a thread that still looks for a daemon is not waited for
    if (!lock.owns_lock()) return;
    if (const auto open = all.sessions[socket].lock()) open->close();
  });
  auto settings = std::make_shared<std::string>(hosts.settings_of(place));
  auto failed = std::make_shared<bool>(false);
  return [place, settings, failed] {
    if (*failed) return;
    if (settings->empty()) *settings = EmbeddedHosts::instance().settings_of(place);
    const Status became = EmbeddedHosts::instance().become(place, *settings);
    *failed = !became.is_ok() && became.code() != Code::kInProgress;
    if (*failed) HDT_LOG_WARN("this process cannot host the node's daemon: {}", became.message());
  };
}

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
    if (last.code() == Code::kVersion || last.code() == Code::kSystem) return last;
    if (others_first.is_never()) {
      const bool one_is_gone = !hosts.settings_of(place).empty();
      others_first = Deadline::after_ms(one_is_gone ? kPrecedenceMs : 0);
    }
    if (others_first.expired()) {
      const Status became = hosts.become(place, "", &holder);
      if (became.is_ok()) continue;
      if (became.code() != Code::kInProgress) return became;
    }
    ::usleep(kLookUs);
  }
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
  if (!socket.empty()) {
    auto session = shared_session(all, socket, timeout_ms);
    if (session.is_ok() || session.status().code() != Code::kNoDaemon) return session;
    return Status(Code::kNoDaemon, session.status().message() + "; start hdtcommd --node.socket " + socket +
                                       ", or unset HDT_SOCKET to use the system's or an embedded daemon");
  }
  const std::string node = environment_text("HDT_NODE_NAME");
  if (node.empty()) {
    const std::string system = Config().node.socket;
    auto session = shared_session(all, system, timeout_ms);
    if (session.is_ok() || session.status().code() != Code::kNoDaemon) return session;
    if (::access(system.c_str(), F_OK) == 0) {
      HDT_LOG_WARN("{}; an embedded daemon is used instead", session.status().message());
    }
  }
  return embedded_session(all, node, timeout_ms);
}

}  // namespace hdt::client
