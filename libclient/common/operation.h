// operation.h: one operation under way, as its waiter sees it. The queue that moves it, the request or
// the waiting thread that wants its result share it (shared_ptr).
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace hdt::client {

// A call that somebody asked for, to be made once several operations are complete. Each of them owns a
// Notice.
struct Notice {
  void (*call)(void* argument);
  void* argument;
  // Operations that are not complete. The last one makes the call.
  std::shared_ptr<std::atomic<size_t>> left;
  std::unique_ptr<Notice> next{};
};

class Operation {
 public:
  // After `timeout_ms` the group is failed if the operation is not complete
  // (Communicator::check_deadlines()).
  explicit Operation(int64_t timeout) : timeout_ms(timeout), deadline(Deadline::after_ms(timeout)) {}
  ~Operation() { delete notices_.load(std::memory_order_relaxed); }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Any thread. acquire pairs with the release in complete(): a caller that sees true may read the
  // status and the results in the user's buffers.
  bool done() const { return done_.load(std::memory_order_acquire); }
  // Called once, by the thread that holds the communicator's lock, or by the thread of the deterministic
  // calls. The queue does not touch the buffers any more.
  void complete(Status status) {
    status_ = std::move(status);
    done_.store(true, std::memory_order_seq_cst);
    if (notices_.load(std::memory_order_seq_cst) != nullptr) give_notice();
  }
  // The notice's call is made by complete(), or at once. Any thread.
  //
  // Either complete() sees the notice, or this sees that the operation is complete: each writes its own
  // variable and then reads the other's, with sequential consistency. Whoever takes the list makes its calls.
  void when_done(std::unique_ptr<Notice> notice) {
    Notice* before = notices_.load(std::memory_order_relaxed);
    Notice* const added = notice.release();
    do {
      (void)added->next.release();
      added->next.reset(before);
    } while (!notices_.compare_exchange_weak(before, added, std::memory_order_seq_cst));
    if (done_.load(std::memory_order_seq_cst)) give_notice();
  }
  // How the operation ended. Valid once done() has returned true.
  const Status& status() const { return status_; }

  // The timeout that the deadline was made from, for the failure's text.
  const int64_t timeout_ms;
  const Deadline deadline;

 private:
  // acq_rel: the call comes after the end of every operation that it is for.
  void give_notice() {
    std::unique_ptr<Notice> notice(notices_.exchange(nullptr, std::memory_order_seq_cst));
    while (notice != nullptr) {
      if (notice->left->fetch_sub(1, std::memory_order_acq_rel) == 1) notice->call(notice->argument);
      notice = std::move(notice->next);
    }
  }

  Status status_;
  std::atomic<bool> done_{false};
  // A list that is only added to, and taken as a whole; owned.
  std::atomic<Notice*> notices_{nullptr};
};

}  // namespace hdt::client
