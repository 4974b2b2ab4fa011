// embedded.h: the only header of the daemon that the client library includes: a daemon inside the process that needs one.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"

namespace hdt::daemon {

class EmbeddedDaemon {
 public:
  virtual ~EmbeddedDaemon() = default;
  // Waits until no other process uses it, at most timeout_ms; false if some still do.
  virtual bool wait_until_unused(int64_t timeout_ms) = 0;
  virtual size_t foreign_sessions() const = 0;
  virtual void stop(const std::string& why) = 0;
};

// Starts a daemon that serves `socket`. Everything else comes from the usual configuration (file, HDT_* variables).
Result<std::unique_ptr<EmbeddedDaemon>> start_embedded(const std::string& socket);

}  // namespace hdt::daemon
