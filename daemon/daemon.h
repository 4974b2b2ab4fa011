// daemon.h: a node's daemon as an object. hdtcommd runs one; so does a process that needs a daemon and
// found none (embedded.h).
//
// Its functions belong to the owner's threads, which are none of the daemon's own; each says which. The
// daemon starts its threads in start(): one control thread and some engine threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/status.h"

namespace hdt::daemon {

class Control;

// A thin front of Control (control/control.h), so that its users do not see the daemon's headers.
class Daemon {
 public:
  // `host_pid`: the process in which it is embedded; 0: hdtcommd. `job_secret`: see embedded.h. Opens
  // nothing yet.
  explicit Daemon(Config config, uint32_t host_pid = 0, const std::string& job_secret = "");
  // Ends a daemon that still runs, as stop() without a drain.
  ~Daemon();

  // Opens devices and sockets and starts all threads. If it fails, destroy the object: no process is
  // served. The Status names what is wrong (configuration, a socket that is taken, a device).
  Status start();
  // Ends in order: it accepts no new sessions, gives calls under way `drain_ms` to finish, fails the
  // remaining groups with kDaemonLost and the text `why`, and closes the sessions. Without sessions it is
  // immediate. Blocks until all threads have ended.
  void stop(int64_t drain_ms, const std::string& why);
  // Prepares the end of this process for a successor, which adopts its groups and operations as if this
  // one had been killed (docs/design/restart.md). A successor could not go on with groups that
  // are being made and with changes of classes, so these get `drain_ms` to finish; false if something is
  // left. No message is sent to anyone: end the process at once, without stop(). Blocks.
  bool prepare_handover(int64_t drain_ms);
  // Running groups follow the classes of this configuration, if all nodes can change. Returns at once;
  // the log says how it went. Any thread.
  void reconfigure(Config config);
  // For the end of the process that the daemon is embedded in. True: other processes need the daemon, so
  // it has ended as if it had been killed, and they go on with a successor (docs/design/restart.md).
  // False: nobody needs it; call stop(). Ranks of the same groups get `quiet_ms` to leave, too; what the
  // host's ranks have sent, and groups that are being made, get `drain_ms`. Blocks.
  bool leave_to_others(int64_t quiet_ms, int64_t drain_ms);
  // For a successor at the same socket: the configuration as TOML, with this daemon's port and number of
  // engine threads. To be called right after start().
  std::string settings() const;
  // For a watchdog, between start() and stop(), by one thread: the names of the control and engine
  // threads that have not passed their loops since the previous call that returned none. If all have,
  // they are asked again.
  std::vector<std::string> hung_threads();

 private:
  std::unique_ptr<Control> control_;
};

}  // namespace hdt::daemon
