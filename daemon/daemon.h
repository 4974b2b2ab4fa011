// daemon.h: a node's daemon as an object: hdtcommd runs one, and so does a process that found none
// (embedded.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/status.h"

namespace hdt::daemon {

class Control;

class Daemon {
 public:
  // host_pid: of the process it is embedded in; 0 for hdtcommd. job_secret: embedded.h.
  explicit Daemon(Config config, uint32_t host_pid = 0, const std::string& job_secret = "");
  ~Daemon();

  // Opens devices and sockets and starts all threads. Failure leaves nothing running.
  Status start();
  // Ends in order: takes no new sessions, gives calls under way `drain_ms` to finish, fails the rest with
  // `why`, closes the sessions. Without sessions it is immediate.
  void stop(int64_t drain_ms, const std::string& why);
  // Before the process ends for a successor, which adopts groups and operations as if this one had been
  // killed (docs/design/restart.md). What a successor could not go on with, groups that are being made and
  // changes of classes, gets `drain_ms` to finish: false if something is left. Nobody is told anything: end
  // the process at once, without stop().
  bool prepare_handover(int64_t drain_ms);
  // Running groups follow the classes of this configuration, if all nodes can. The log tells how it went.
  void reconfigure(Config config);
  // Before the end of the process that the daemon is embedded in. True: other processes need it, so that it
  // has ended as if it had been killed, and they go on with a successor (docs/design/restart.md). False:
  // nobody does; stop() it. Ranks of the same groups get `quiet_ms` to leave, too; what the host's ranks have
  // sent, and groups that are being made, get `drain_ms`.
  bool leave_to_others(int64_t quiet_ms, int64_t drain_ms);
  // For a successor at the same socket: the configuration as TOML, with this one's port and number of engine
  // threads.
  std::string settings() const;
  // For a watchdog, between start() and stop(), by one thread that is none of the daemon's: the names of the
  // control and engine threads that have not passed their loops since they were asked. With none, all are
  // asked anew.
  std::vector<std::string> hung_threads();

 private:
  std::unique_ptr<Control> control_;
};

}  // namespace hdt::daemon
