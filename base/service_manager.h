// service_manager.h: reports the daemon's state to the service manager that started it: it serves, it
// still works, it ends. The protocol is systemd's sd_notify: datagrams to the socket that NOTIFY_SOCKET
// names. Without that variable nothing is sent.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"

namespace hdt {

// The sender's end. hdtcommd makes it before its threads and calls it from its main thread; it is not
// thread-safe.
class ServiceManager {
 public:
  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID and removes them from the environment, because they
  // are meant for this process and not for its children. To be called before there is a second thread, as
  // the environment has no lock. kConfig: a variable makes no sense. kSystem: there is no socket.
  static Result<ServiceManager> of_environment();

  // Whether a service manager wants messages.
  bool is_there() const { return socket_.valid(); }
  // How long, in ms, the manager waits for alive() before it takes the daemon for hung; 0: it does not watch.
  int64_t watchdog_ms() const { return watchdog_ms_; }

  // The three messages. Each may be sent at any time and never waits. A message that cannot be sent is a
  // line in the log; a repeated failure is logged once.
  void ready() { say("READY=1"); }
  void alive() { say("WATCHDOG=1"); }
  void stopping(const std::string& why) { say("STOPPING=1\nSTATUS=" + why); }

 private:
  // Sends one message: lines of KEY=VALUE.
  void say(const std::string& words);

  UniqueFd socket_;
  std::string address_;  // of NOTIFY_SOCKET; '@' in front stands for the abstract name space
  int64_t watchdog_ms_ = 0;
  bool failed_ = false;  // the latest message could not be sent
};

}  // namespace hdt
