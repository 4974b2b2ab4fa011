// channel_binding.h: ties a handshake to the protected connection that carries it. Somebody who has the
// cluster key could open such a connection to each of two daemons and pass their signatures on, and each
// would take him for the other; what they sign holds for one connection only.
#pragma once

#include "daemon/protocol/handshake.h"
#include "transports/secured_connection.h"
#include "transports/transport.h"

namespace hdt::daemon {

// Before the dialer's start(), and before the acceptor hears its first message. Nothing where the connection
// is not protected.
inline void bind_to_channel(Handshake& handshake, const transport::Connection& connection) {
  const auto* secured = dynamic_cast<const transport::SecuredConnection*>(&connection);
  if (secured != nullptr && secured->binding() != nullptr) handshake.bind(*secured->binding());
}

}  // namespace hdt::daemon
