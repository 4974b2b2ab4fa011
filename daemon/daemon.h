// daemon.h: a node's daemon as an object: hdtcommd runs one, and so does a process that found none (embedded.h).
#pragma once

#include <memory>
#include <string>

#include "base/config.h"
#include "base/status.h"

namespace hdt::daemon {

class Control;

class Daemon {
 public:
  // host_pid: of the process it is embedded in; 0 for hdtcommd.
  explicit Daemon(Config config, uint32_t host_pid = 0);
  ~Daemon();

  // Opens devices and sockets and starts all threads. Failure leaves nothing running.
  Status start();
  // Ends in order: takes no new sessions, gives calls under way `drain_ms` to finish, fails the rest with `why`,
  // closes the sessions. Without sessions it is immediate.
  void stop(int64_t drain_ms, const std::string& why);
  // Before the process ends for a successor, which adopts groups and operations as if this one had been killed
  // (docs/design/restart.md). What a successor could not go on with, groups that are being made and changes of classes, gets
  // `drain_ms` to finish: false if something is left. Nobody is told anything: end the process at once, without stop().
  bool prepare_handover(int64_t drain_ms);
  // Running groups follow the classes of this configuration, if all nodes can. The log tells how it went.
  void reconfigure(Config config);
  // Waits until no process but the host uses the daemon; false at the deadline.
  bool wait_until_unused(int64_t timeout_ms);
  // Sessions of other processes than the host.
  size_t foreign_sessions() const;

 private:
  std::unique_ptr<Control> control_;
};

}  // namespace hdt::daemon
