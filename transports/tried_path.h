// tried_path.h: what a Connection may be besides: one that tries packets of every size, both ways, before it
// is connected, as small packets say nothing about large ones.
#pragma once

#include <cstdint>
#include <string>

namespace hdt::transport {

class TriedPath {
 public:
  virtual ~TriedPath() = default;
  // Why it uses smaller packets than its NIC allows, and what to do about it, for an administrator; "": it
  // does not. Valid from kConnected on, and at the end that accepted from the peer's first message on.
  virtual std::string narrowed() const = 0;
  // The largest packet that has passed, both ways; 0: none was tried, as there is nothing between the two
  // ends. At the end that dialled.
  virtual uint32_t largest_packet() const = 0;
};

}  // namespace hdt::transport
