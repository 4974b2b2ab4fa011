// operation.h: one operation under way, as its waiter sees it. The queue that moves it, the request or
// the waiting thread that wants its result share it (shared_ptr).
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace hdt::client {

class Operation {
 public:
  // At `until` the group is failed if the operation is not complete (Communicator::check_deadlines()).
  explicit Operation(Deadline until) : deadline(until) {}

  // Any thread. acquire pairs with the release in complete(): a caller that sees true may read the
  // status and the results in the user's buffers.
  bool done() const { return done_.load(std::memory_order_acquire); }
  // Called once, by the thread that holds the communicator's lock, or by the thread of the deterministic
  // calls. The queue does not touch the buffers any more.
  void complete(Status status) {
    status_ = std::move(status);
    done_.store(true, std::memory_order_release);
  }
  // How the operation ended. Valid once done() has returned true.
  const Status& status() const { return status_; }

  const Deadline deadline;

 private:
  Status status_;
  std::atomic<bool> done_{false};
};

}  // namespace hdt::client
