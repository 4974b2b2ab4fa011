// several_connections.h: what a Device may be besides: one whose NIC needs more than one connection to be
// filled. Each is a rail of its own, so a link stripes over them as over NICs.
#pragma once

#include <cstddef>

namespace hdt::transport {

class SeveralConnections {
 public:
  virtual ~SeveralConnections() = default;
  // Between two such NICs.
  virtual size_t connections() const = 0;
};

}  // namespace hdt::transport
