// progress_thread.h: the thread that moves asynchronous operations while their caller computes. There is
// one in a process; the first operation that needs it starts it. It is asleep when there is nothing to
// do. A caller that waits takes the work over: the thread leaves a communicator alone while a thread
// waits in it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/doorbell.h"
#include "libclient/group/communicator.h"

namespace hdt::client {

// Owned by the process. It ends when the process exits; in a forked copy, which has no such thread, the
// object is left as it is (base/fork_mark.h). All public functions may be called from any thread.
class ProgressThread {
 public:
  // The only one.
  static ProgressThread& instance();
  ProgressThread() = default;
  // Waits for the thread to end.
  ~ProgressThread();
  // Starts the thread, unless it runs. kSystem: the system refuses it. To be called before an operation
  // is submitted for which nobody waits.
  Status start();
  // `communicator` has pending operations. It is kept alive until it needs no progress any more. The
  // thread must run (start()).
  void wake(std::shared_ptr<Communicator> communicator);

 private:
  // The thread.
  void run();
  // One look at everything, and a sleep if nothing was to be done. False: the thread is to end.
  bool look_around();

  // Guards active_ and the start of thread_.
  std::mutex mutex_;
  std::vector<std::shared_ptr<Communicator>> active_;
  // Rung for a new communicator and for the end.
  Doorbell doorbell_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace hdt::client
