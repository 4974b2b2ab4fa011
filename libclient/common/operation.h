// operation.h: one asynchronous operation, as its request sees it.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace hdt::client {

class Operation {
 public:
  explicit Operation(Deadline until) : deadline(until) {}

  bool done() const { return done_.load(std::memory_order_acquire); }
  // Called once.
  void complete(Status status) {
    status_ = std::move(status);
    done_.store(true, std::memory_order_release);
  }
  // Valid once done.
  const Status& status() const { return status_; }

  const Deadline deadline;

 private:
  Status status_;
  std::atomic<bool> done_{false};
};

}  // namespace hdt::client
