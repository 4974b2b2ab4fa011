// channel_binding.h: ties a handshake to the protected connection that carries it (channel binding, RFC
// 5056). Without it, a program that has the cluster key could open a connection to each of two daemons and
// pass their signatures on, and each daemon would take it for the other. Their signatures hold for one
// connection only, as they include a value that TLS derives for that connection.
#pragma once

#include "daemon/protocol/handshake.h"
#include "transports/secured_connection.h"
#include "transports/transport.h"

namespace hdt::daemon {

// Binds `handshake` to `connection`. Call it before the dialer's start(), and on the accepting side
// before the first message is handed to the handshake. Does nothing if the connection is not protected:
// then the binding stays all zeros, on both ends.
inline void bind_to_channel(Handshake& handshake, const transport::Connection& connection) {
  const auto* secured = dynamic_cast<const transport::SecuredConnection*>(&connection);
  if (secured != nullptr && secured->binding() != nullptr) handshake.bind(*secured->binding());
}

}  // namespace hdt::daemon
