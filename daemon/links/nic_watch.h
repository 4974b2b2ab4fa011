// nic_watch.h: hears from the kernel when a network interface loses or gets its carrier, so that rails over a
// NIC that went down are given up at once: TCP itself would say nothing for seconds.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"

namespace hdt::daemon {

class NicWatch {
 public:
  struct Event {
    std::string name;
    bool up = false;
  };
  Status open();
  // Readable when there are events.
  int fd() const { return socket_.get(); }
  // What has changed since the last call. Empty after an overflow too: silent rails are found by the link
  // itself.
  std::vector<Event> events();

 private:
  UniqueFd socket_;
};

}  // namespace hdt::daemon
