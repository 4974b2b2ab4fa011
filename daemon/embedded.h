// embedded.h: a daemon inside the process that needs one. This is the only header of the daemon that the
// client library includes. Which process of a node hosts the daemon, and when, is decided by
// libclient/daemon_client/embedded_hosts.h.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"

namespace hdt::daemon {

// A daemon that runs in this process, from start_embedded() on. Its owner is the library's host of the
// node; its functions are called by threads of the process, never by the daemon's own.
class EmbeddedDaemon {
 public:
  virtual ~EmbeddedDaemon() = default;
  // Ends the daemon when its process ends. True: other processes need it, one of them goes on with a
  // successor at the same socket, and this one has ended as if it had been killed. False: it was stopped
  // in order, with the reason `why`. Blocks until what its own ranks have sent has arrived and groups
  // that are being made are made, but for some seconds at most.
  virtual bool end(const std::string& why) = 0;
  // The settings for a successor: the configuration as TOML, with this daemon's port and number of
  // engine threads.
  virtual std::string settings() const = 0;
};

// Starts a daemon that serves `socket`. The path must belong to the caller alone: whatever lies there is
// removed.
//
// `settings`: those of a predecessor (EmbeddedDaemon::settings()). If the daemon cannot start with them,
// it is started at another port; the log says so. "": there is no predecessor, and everything comes from
// the usual configuration (file, HDT_* variables).
//
// `job_secret`: a text that the daemons of this job on other nodes have, too, and nobody else. A key is
// made from it that serves as the cluster key. "": there is none, and whoever reaches this daemon is
// taken for one of its job.
Result<std::unique_ptr<EmbeddedDaemon>> start_embedded(const std::string& socket, const std::string& settings,
                                                       const std::string& job_secret);

}  // namespace hdt::daemon
