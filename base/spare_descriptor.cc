// spare_descriptor.cc: the reserve is an open /dev/null. Closing it and accepting are two steps, and
// another thread of the process may take the free number in between; accept4() then fails again and the
// caller retries at the listener's next event.
#include "base/spare_descriptor.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>

namespace hdt {

UniqueFd SpareDescriptor::accept_instead(int listener, int error) {
  if ((error != EMFILE && error != ENFILE) || !spare_.valid()) return UniqueFd();
  spare_.reset();
  return UniqueFd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

void SpareDescriptor::restore() {
  if (!spare_.valid()) spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

}  // namespace hdt
