// embedded_hosts.cc: becoming a host, and ending. The order at both ends is what keeps two daemons of
// one node from running at the same time: the lock is taken before a daemon starts, and it is given up
// after the daemon has ended.
#include "libclient/daemon_client/embedded_hosts.h"

#include <unistd.h>

#include <filesystem>
#include <set>

#include "base/clock.h"
#include "base/hmac.h"
#include "base/log.h"
#include "base/seqpacket.h"

namespace hdt::client {

namespace {

// How long a process that ends waits for a host that ends as well, in ms. A host that does not listen
// any more has given up the lock by then, or it is a new one that is about to listen.
constexpr int64_t kHostEndsMs = 1'000;
// Between two looks, in us.
constexpr int64_t kHostLookUs = 2'000;

std::string socket_of(const RuntimePlace& place) { return place.base + ".sock"; }
std::string lock_of(const RuntimePlace& place) { return place.base + ".lock"; }

// The lock is held. The folder is removed only if it is empty, so files of other nodes or jobs keep it.
void remove_files(const RuntimePlace& place, HostLock& lock) {
  (void)::unlink(socket_of(place).c_str());
  lock.remove();
  (void)::rmdir(place.folder.c_str());
}

}  // namespace

// A static object that is destroyed when the process ends in order. Its constructor starts the
// cryptography library first, so that this library's own end comes later: the daemons do handshakes
// until then.
struct EndOfProcess {
  explicit EndOfProcess(EmbeddedHosts& all) : hosts(all) { start_cryptography(); }
  EmbeddedHosts& hosts;
  ~EndOfProcess() { hosts.end(); }
};

EmbeddedHosts::EmbeddedHosts() : process_(::getpid()) {}

EmbeddedHosts& EmbeddedHosts::instance() {
  static EmbeddedHosts& hosts = *new EmbeddedHosts();
  // The object itself is never destroyed; only its end() runs.
  static const EndOfProcess end{hosts};
  return hosts;
}

// 1. Take the lock, or leave the place to the process that has it.
// 2. Start the daemon. It removes what lies at the socket's path: a copy of an old socket misleads
//    nobody.
// 3. Write the settings into the lock's file, for the successor.
// 4. Remove what killed hosts have left in the folder.
Status EmbeddedHosts::become(const RuntimePlace& place, const std::string& settings, pid_t* holder) {
  const std::lock_guard lock(mutex_);
  if (ending_) return {Code::kInvalidUsage, "this process ends"};
  if (hosts_.contains(place.base)) return Status::ok();
  HDT_RETURN_IF_ERROR(make_runtime_folder(place.folder));
  auto taken = HostLock::take(lock_of(place), holder);
  if (!taken.is_ok()) return taken.status();
  auto daemon = daemon::start_embedded(socket_of(place), settings, job_secret(environment_text));
  if (!daemon.is_ok()) {
    remove_files(place, taken.value());
    return daemon.status();
  }
  const std::string own = daemon.value()->settings();
  const Status written = taken.value().write(own);
  // The daemon works all the same; a successor would begin with its own configuration.
  if (!written.is_ok()) HDT_LOG_WARN("{}: a successor would begin with its own settings", written.message());
  HDT_LOG_INFO("no hdtcommd found: a daemon for this node runs inside process {} at {}{}", ::getpid(),
               socket_of(place), settings.empty() ? "" : ", in the place of one whose process has ended");
  hosts_.emplace(place.base, Host{taken.take(), daemon.take(), own});
  remove_left_files(place.folder);
  return Status::ok();
}

std::string EmbeddedHosts::settings_of(const RuntimePlace& place) {
  const std::lock_guard lock(mutex_);
  // A process that holds the lock must not open the file: closing it would give the lock up.
  if (const auto own = hosts_.find(place.base); own != hosts_.end()) return own->second.settings;
  return HostLock::read(lock_of(place));
}

void EmbeddedHosts::use(const RuntimePlace& place, std::function<void()> close) {
  const std::lock_guard lock(mutex_);
  used_.emplace(place.base, Use{place, std::move(close)});
}

// Files of hosts that were killed, and nobody was there to go on. mutex_ is held.
void EmbeddedHosts::remove_left_files(const std::string& folder) {
  std::set<std::string> bases;
  std::error_code error;
  // Errors end the loop; somebody else cleans up later.
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string kind = entry.path().extension();
    if (kind == ".lock" || kind == ".sock")
      bases.insert((entry.path().parent_path() / entry.path().stem()).string());
  }
  for (const std::string& base : bases) {
    // Not our own: see settings_of().
    if (!hosts_.contains(base)) clean({folder, base});
  }
}

// The host may be of a release that does not know the lock: then somebody answers at the socket, and the
// files stay.
bool EmbeddedHosts::clean(const RuntimePlace& place) {
  auto taken = HostLock::take(lock_of(place));
  if (!taken.is_ok()) return taken.status().code() != Code::kInProgress;
  if (!somebody_listens(socket_of(place))) remove_files(place, taken.value());
  return true;
}

// 1. Take everything out, so that no thread starts a daemon any more.
// 2. End the daemons of this process. If other processes need one, it ends as if it had been killed, and
//    the files stay for the successor.
// 3. For daemons that this process only used: see whether the files are left and nobody hosts.
void EmbeddedHosts::end() {
  // A child of fork() has no part in it.
  if (::getpid() != process_) return;
  std::map<std::string, Host> hosts;
  std::multimap<std::string, Use> used;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    hosts.swap(hosts_);
    used.swap(used_);
  }
  for (auto& [base, host] : hosts) {
    const RuntimePlace place{std::filesystem::path(base).parent_path(), base};
    const bool others = host.daemon->end("the process that hosted the embedded daemon ended");
    // The lock is given up last: until then nobody starts a daemon where this one still is.
    host.daemon.reset();
    // The lock is given up last: until then nobody starts where this one still is.
    if (!others) remove_files(place, host.lock);
  }
  // A host that ends just now does not count this process any more, or it has stopped listening before
  // this process looks. In both cases nobody else may be left to remove the files.
  for (const auto& [base, use] : used) {
    if (hosts.contains(base)) continue;
    use.close();
    const Deadline soon = Deadline::after_ms(kHostEndsMs);
    while (std::filesystem::exists(lock_of(use.place)) && !clean(use.place) &&
           !somebody_listens(socket_of(use.place)) && !soon.expired()) {
      ::usleep(kHostLookUs);
    }
  }
}

}  // namespace hdt::client
