// embedded_hosts.h: the embedded daemons that this process hosts, and its part in which process hosts
// one.
//
// The host is the process that holds the lock (host_lock.h). When it ends, or is killed, the first of
// the processes that need the daemon takes the lock and starts one at the same socket with the same
// settings, and all others go on with it (docs/design/restart.md). A process that ends and finds that
// nobody hosts removes the files.
//
// Any thread may call it, also while the process ends.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "daemon/embedded.h"
#include "libclient/daemon_client/host_lock.h"
#include "libclient/daemon_client/runtime_folder.h"

namespace hdt::client {

// Lives as long as the process, since threads of sessions may call it until the end. Most processes host
// no daemon, or one; a process that plays several nodes (HDT_NODE_NAME) may host several.
class EmbeddedHosts {
 public:
  // The only one.
  static EmbeddedHosts& instance();

  // Starts the daemon of `place` in this process, unless one runs here already. `settings`: its
  // predecessor's; "": it has none. kInProgress: another process is the host or becomes it; `holder`, if
  // not null, is set to its pid, or to 0 if this process cannot see it. kInvalidUsage: this process
  // ends. Other errors are those of the folder, the lock and the daemon. May take some seconds.
  Status become(const RuntimePlace& place, const std::string& settings, pid_t* holder = nullptr);
  // The settings that the host has written down for its successor. "": it has not written them yet, or
  // there is no host and never was one.
  std::string settings_of(const RuntimePlace& place);
  // Notes that this process uses the daemon of `place`: at its end it looks whether files are left
  // there. `close` ends its session with that daemon.
  void use(const RuntimePlace& place, std::function<void()> close);

 private:
  friend struct EndOfProcess;
  // A daemon that runs in this process.
  struct Host {
    HostLock lock;
    std::unique_ptr<daemon::EmbeddedDaemon> daemon;
    // As written to the lock's file, which this process must not open again (host_lock.h).
    std::string settings;
  };
  EmbeddedHosts();
  // At the end of the process: ends the daemons, and removes files that nobody needs.
  void end();
  // Removes the files of hosts that were killed when nobody was there to go on. mutex_ is held.
  void remove_left_files(const std::string& folder);
  // Removes the files of `place` if nobody hosts there. False: another process has the lock.
  static bool clean(const RuntimePlace& place);

  // The process that made the object: a child of fork() is another one.
  const pid_t process_;
  // Guards what follows. It is held while a daemon starts, so that a process starts one at a time.
  std::mutex mutex_;
  // True once the process ends: nothing is hosted any more.
  bool ending_ = false;
  // Both by RuntimePlace::base.
  std::map<std::string, Host> hosts_;
  // A daemon that this process uses.
  struct Use {
    RuntimePlace place;
    std::function<void()> close;
  };
  std::multimap<std::string, Use> used_;
};

}  // namespace hdt::client
