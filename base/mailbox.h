// mailbox.h: work handed to a thread that sleeps in epoll. Any thread posts; the owner's thread runs. It
// is for the control plane only, as it takes a lock and allocates: the control thread and the engines
// have one each.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"

namespace hdt {

// A queue of functions with an eventfd, which is readable exactly while the queue is not empty; both change
// under the lock (after close() the eventfd has no meaning). Work is run in the order in which it was posted.
class Mailbox {
 public:
  // Makes the eventfd; see status() for whether that worked.
  Mailbox();
  // kSystem if there is no eventfd, so that nothing could wake the owner. The owner checks it before it
  // starts its thread.
  const Status& status() const { return status_; }
  // Runs `work` later on the owner's thread. Any thread. After close() the work is dropped: its
  // destructor then runs on the caller's thread, outside of the lock.
  void post(std::function<void()> work);
  // For the owner: runs everything that was posted before the call, and returns true if there was
  // anything. Work that is posted meanwhile waits for the next call. An exception of one piece of work
  // ends that piece and keeps no other from being run (base/contained.h). If somebody waits for a
  // piece's answer, the piece must contain its exceptions itself and answer.
  bool run();
  // Drops what is queued and everything that is posted later. For the owner's end.
  void close();
  // For epoll: readable while there is work.
  int fd() const { return event_.get(); }

 private:
  UniqueFd event_;
  Status status_;
  std::mutex mutex_;
  bool closed_ = false;
  std::vector<std::function<void()>> posted_;
};

}  // namespace hdt
