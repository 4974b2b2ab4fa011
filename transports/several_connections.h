// several_connections.h: an interface that a Device may implement as well, if one connection does not use its
// NIC's full speed. The engine dials as many connections as it asks for. Each is a rail of its own, so a link
// stripes over them as over NICs. A device without it has one connection to each peer's NIC.
#pragma once

#include <cstddef>

namespace hdt::transport {

class SeveralConnections {
 public:
  virtual ~SeveralConnections() = default;
  // The number of connections between this NIC and a peer's NIC of the same kind; at least 1.
  virtual size_t connections() const = 0;
};

}  // namespace hdt::transport
