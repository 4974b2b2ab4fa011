// spare_descriptor.h: a descriptor that is kept for the moment when a listener's process is at its limit of
// open files: a connection that cannot be accepted would stay in the queue, keep the listener readable and
// its owner awake, and the other side would wait for ever. With the spare one it is accepted, told why, and
// closed.
#pragma once

#include "base/unique_fd.h"

namespace hdt {

class SpareDescriptor {
 public:
  SpareDescriptor() { restore(); }
  // After accept() has failed: where `error` (its errno) is a limit of descriptors, accepts the next
  // connection in the place of the spare one. Not valid: it is another error, or somebody else took the
  // place. Non-blocking.
  UniqueFd accept_instead(int listener, int error);
  // When the connection is closed. If it fails the next call of accept_instead() does, too, until it has been
  // called again.
  void restore();

 private:
  UniqueFd spare_;
};

}  // namespace hdt
