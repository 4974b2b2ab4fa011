// own_core.h: keeps the ranks of a node off each other's cores. Two ranks that wait for each other on one
// core take turns there, and the scheduler may leave them so although other cores are idle: both have always
// just run. A call of half a microsecond then takes 15 to 30. So ranks tell each other on which processor
// they are, and one of two that share a core leaves it.
//
// Owner: Communicator. Any thread.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "libclient/common/node_access.h"

namespace hdt::client {

class OwnCore {
 public:
  // `access` must outlive it.
  explicit OwnCore(const NodeAccess& access) : access_(access) {}

  // Tells the other ranks of the node on which processor this thread is. A few instructions while that stays
  // the same.
  void publish() const {
    const int number = ::sched_getcpu();
    const auto processor = static_cast<uint32_t>(number + 1);
    std::atomic<uint32_t>& published = access_.rank_state().processor;
    if (published.load(std::memory_order_relaxed) != processor)
      published.store(processor, std::memory_order_relaxed);
  }

  // For a thread that begins to wait: publishes, and returns the rounds at full speed (spin.h). 0 where
  // another rank is on this core, as it cannot run meanwhile. When that has been so for kSharedWaits waits in
  // a row, and that rank has the lower number, the calling thread leaves the core.
  int quick_rounds();
  // What the last quick_rounds() saw: another rank is on this core.
  bool shared() const { return shared_waits_.load(std::memory_order_relaxed) != 0; }

 private:
  const NodeAccess& access_;
  std::atomic<uint32_t> shared_waits_{0};  // in a row
  std::atomic<int64_t> not_before_ns_{0};  // the next move
};

// Moves the calling thread to a processor that it may use and that is not in `taken`. What it may use is the
// same afterwards. False: there is none, or the system refuses. Another thread that changes this thread's
// affinity at the same moment may find it changed back.
bool leave_processors(const cpu_set_t& taken);

}  // namespace hdt::client
