// embedded.h: the only header of the daemon that the client library includes: a daemon inside the process
// that needs one.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"

namespace hdt::daemon {

class EmbeddedDaemon {
 public:
  virtual ~EmbeddedDaemon() = default;
  // Ends it with its process. Where other processes need it, one of them goes on with a successor at the same
  // socket, and this one has ended as if it had been killed: then this returns true. Takes as long as what
  // its own ranks have sent, and groups that are being made, at most some seconds.
  virtual bool end(const std::string& why) = 0;
  // What a successor is started with: the configuration, the port and the number of engine threads.
  virtual std::string settings() const = 0;
};

// Starts a daemon that serves `socket`, which is nobody else's: what lies there is removed. `settings`: a
// predecessor's; "": there is none, and everything comes from the usual configuration (file, HDT_*
// variables). `job_secret`: what its job's daemons on other nodes have, too, and nobody else; they have the
// key that is made from it as others have a cluster key. "": there is none, and whoever reaches this daemon
// is taken for one of its job.
Result<std::unique_ptr<EmbeddedDaemon>> start_embedded(const std::string& socket, const std::string& settings,
                                                       const std::string& job_secret);

}  // namespace hdt::daemon
