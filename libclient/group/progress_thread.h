// progress_thread.h: the thread that moves asynchronous operations while their caller computes. One per
// process, started by the first operation that needs it, asleep when there is nothing to do. A caller that
// waits takes the work over: the thread leaves a communicator alone while someone waits in it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/doorbell.h"
#include "libclient/group/communicator.h"

namespace hdt::client {

class ProgressThread {
 public:
  // The process's.
  static ProgressThread& instance();
  ProgressThread() = default;
  // Waits for the thread to end.
  ~ProgressThread();
  // Starts the thread, unless it runs: before an operation is posted that nobody waits for.
  Status start();
  // `communicator` has pending operations. The thread runs.
  void wake(std::shared_ptr<Communicator> communicator);

 private:
  void run();

  std::mutex mutex_;  // guards active_ and the start of thread_
  std::vector<std::shared_ptr<Communicator>> active_;
  Doorbell doorbell_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace hdt::client
