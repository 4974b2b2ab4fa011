// tried_path.h: an interface that a Connection may implement as well, if it tests packets of growing size in
// both directions before it reports kConnected. Where a switch drops packets above its own MTU, small packets
// pass, and so the connect says nothing about large ones. The daemon finds the interface by dynamic_cast.
#pragma once

#include <cstdint>
#include <string>

namespace hdt::transport {

class TriedPath {
 public:
  virtual ~TriedPath() = default;
  // A text for an administrator: why the connection uses smaller packets than its NIC allows, and what to do
  // about it. "": it does not. Valid from kConnected on; at the end that accepted, from the peer's first
  // message on.
  virtual std::string narrowed() const = 0;
  // The size in bytes of the largest packet that has passed in both directions. 0: none was tried, as nothing
  // lies between the two ends. Valid at the end that dialled.
  virtual uint32_t largest_packet() const = 0;
};

}  // namespace hdt::transport
