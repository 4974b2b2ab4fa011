// embedded_hosts.h: the embedded daemons that this process hosts, and its part in who hosts one.
//
// The host is who holds the lock (host_lock.h). When it ends, or is killed, the first of the processes that
// need the daemon takes the lock, starts one at the same socket, with the same settings, and all adopt
// (docs/design/restart.md). Who ends and finds that nobody hosts removes the files.
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

class EmbeddedHosts {
 public:
  // Lives as long as the process: sessions' threads do.
  static EmbeddedHosts& instance();

  // Starts the daemon of `place` in this process, unless one runs here. `settings`: its predecessor's, "": it
  // has none. kInProgress: another process (`holder`, if this one can see it) is the host or becomes it.
  Status become(const RuntimePlace& place, const std::string& settings, pid_t* holder = nullptr);
  // What the host has written down for its successor; "": nothing yet, or there is no host and never was one.
  std::string settings_of(const RuntimePlace& place);
  // This process uses the daemon of `place`: at its end it looks whether files are left there.
  // `close`: how its session ends.
  void use(const RuntimePlace& place, std::function<void()> close);

 private:
  friend struct EndOfProcess;
  struct Host {
    HostLock lock;
    std::unique_ptr<daemon::EmbeddedDaemon> daemon;
    std::string settings;
  };
  EmbeddedHosts();
  void end();
  void remove_left_files(const std::string& folder);
  // False: another process has the lock.
  static bool clean(const RuntimePlace& place);

  const pid_t process_;
  std::mutex mutex_;  // guards what follows, and is held while a daemon starts
  bool ending_ = false;
  std::map<std::string, Host> hosts_;  // by base
  struct Use {
    RuntimePlace place;
    std::function<void()> close;
  };
  std::multimap<std::string, Use> used_;  // the same
};

}  // namespace hdt::client
