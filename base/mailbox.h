// mailbox.h: work handed to a thread that sleeps in epoll. Any thread posts; the owner runs. For the control
// plane only: it takes a lock and allocates.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"

namespace hdt {

class Mailbox {
 public:
  Mailbox();
  // Why it cannot wake its owner: looked at before the owner's thread starts.
  const Status& status() const { return status_; }
  // Runs `work` later on the owner's thread. After close() it is dropped (its destructor runs here).
  void post(std::function<void()> work);
  // Owner: runs everything that was posted; true if there was anything. What throws ends there, and keeps
  // nothing else from being run (base/contained.h); work that somebody waits for contains itself.
  bool run();
  void close();
  // Readable when there is work.
  int fd() const { return event_.get(); }

 private:
  UniqueFd event_;
  Status status_;
  std::mutex mutex_;
  bool closed_ = false;
  std::vector<std::function<void()>> posted_;
};

}  // namespace hdt
