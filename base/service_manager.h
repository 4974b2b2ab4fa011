// service_manager.h: what a daemon tells the service manager that started it: that it serves, that it still
// works, that it ends. systemd's protocol (sd_notify): datagrams to the socket that NOTIFY_SOCKET names.
// Without that variable nothing is sent.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"

namespace hdt {

class ServiceManager {
 public:
  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, and takes them out of the environment, as they are
  // meant for this process alone. To be called before there is a second thread. kConfig: a variable makes no
  // sense.
  static Result<ServiceManager> of_environment();

  bool is_there() const { return socket_.valid(); }
  // How long the manager waits for alive() before it takes the daemon for hung; 0: it does not wait for it.
  int64_t watchdog_ms() const { return watchdog_ms_; }

  // Each may be called at any time and never waits. A word that cannot be said is a line in the log.
  void ready() { say("READY=1"); }
  void alive() { say("WATCHDOG=1"); }
  void stopping(const std::string& why) { say("STOPPING=1\nSTATUS=" + why); }

 private:
  void say(const std::string& words);

  UniqueFd socket_;
  std::string address_;  // '@' in front: of the abstract name space
  int64_t watchdog_ms_ = 0;
  bool failed_ = false;  // the last word was not said
};

}  // namespace hdt
