// spare_descriptor.h: a descriptor in reserve for the moment when a listener's process is at its limit
// of open files. A connection that cannot be accepted would stay in the queue, keep the listener
// readable and its owner awake, and the other side would wait for ever. With the spare descriptor the
// connection is accepted, gets an answer with the reason, and is closed.
#pragma once

#include "base/unique_fd.h"

namespace hdt {

// Belongs to one listener and is used on the thread that accepts there.
class SpareDescriptor {
 public:
  SpareDescriptor() { restore(); }
  // To be called after accept() has failed with `error` (its errno). If that is a limit of descriptors,
  // frees the spare one and accepts the next connection in its place. The result is non-blocking. It is
  // not valid if the error was another one, or if another thread took the free place first.
  UniqueFd accept_instead(int listener, int error);
  // To be called when that connection is closed: takes the reserve again. If that fails,
  // accept_instead() returns nothing until a later restore() succeeds.
  void restore();

 private:
  UniqueFd spare_;
};

}  // namespace hdt
