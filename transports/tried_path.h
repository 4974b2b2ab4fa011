// tried_path.h: what a Connection may be besides: one that tries packets of every size, both ways, before it is connected, as small
// packets say nothing about large ones.
#pragma once

#include <string>

namespace hdt::transport {

class TriedPath {
 public:
  virtual ~TriedPath() = default;
  // Why it uses smaller packets than its NIC allows, and what to do about it, for an administrator; "": it does not. Valid from
  // kConnected on, and at the end that accepted from the peer's first message on.
  virtual std::string narrowed() const = 0;
};

}  // namespace hdt::transport
