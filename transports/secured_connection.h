// secured_connection.h: an interface that a Connection may implement as well, if its bytes are protected
// (transports/secure). The daemon finds it by dynamic_cast; a connection without it is not protected.
#pragma once

#include "transports/secure/secure.h"

namespace hdt::transport {

class SecuredConnection {
 public:
  virtual ~SecuredConnection() = default;
  // The binding of the connection, the same 32 bytes at both ends: a handshake signs it, so that its proof
  // cannot be used on another connection. nullptr: this connection is not protected. Valid from kConnected
  // on; at the end that accepted, from the peer's first message on.
  virtual const secure::Binding* binding() const = 0;
};

}  // namespace hdt::transport
