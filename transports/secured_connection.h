// secured_connection.h: what a Connection may be besides: one that is protected (transports/secure).
#pragma once

#include "transports/secure/secure.h"

namespace hdt::transport {

class SecuredConnection {
 public:
  virtual ~SecuredConnection() = default;
  // nullptr: it is not. From kConnected on, and at the end that accepted from the peer's first message on.
  virtual const secure::Binding* binding() const = 0;
};

}  // namespace hdt::transport
