// nic_watch.h: hears from the kernel (rtnetlink) when a network interface loses or gets its carrier.
// Rails over a NIC that went down can then be given up at once, while TCP alone would notice nothing for
// seconds.
//
// Owner: LinkTable; the engine's thread.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"

namespace hdt::daemon {

class NicWatch {
  // A change of one interface.
 public:
  // An interface has changed; `name` as the kernel has it.
  struct Event {
    // the interface as the kernel names it
    std::string name;
    // it is up and has a carrier
    bool up = false;
  };
  // kSystem if the kernel refuses the socket.
  Status open();
  // Readable when there are events.
  int fd() const { return socket_.get(); }
  // The changes since the last call; an interface may be in it several times, and also if only
  // other properties have changed. Empty after an overflow as well: the link finds silent rails by
  // itself.
  std::vector<Event> events();

 private:
  UniqueFd socket_;
};

}  // namespace hdt::daemon
