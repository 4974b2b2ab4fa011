// progress_thread.cc: one loop over all communicators that have operations for which nobody waits. The
// thread sleeps on their doorbells and on its own at the same time (sleep_on_any()), until the earliest
// of their deadlines.
#include "libclient/group/progress_thread.h"

#include <unistd.h>

#include <algorithm>

#include "base/contained.h"
#include "base/fork_mark.h"
#include "base/log.h"
#include "base/start_thread.h"

namespace hdt::client {

ProgressThread& ProgressThread::instance() {
  static KeptInCopies<ProgressThread> thread;
  return *thread;
}

ProgressThread::~ProgressThread() {
  stop_.store(true, std::memory_order_release);
  doorbell_.ring();
  if (thread_.joinable()) thread_.join();
}

Status ProgressThread::start() {
  const std::lock_guard lock(mutex_);
  if (thread_.joinable()) return Status::ok();
  auto thread = start_thread("hdt-progress", [this] { run(); });
  if (!thread.is_ok()) return thread.status();
  thread_ = thread.take();
  return Status::ok();
}

void ProgressThread::wake(std::shared_ptr<Communicator> communicator) {
  {
    const std::lock_guard lock(mutex_);
    if (std::find(active_.begin(), active_.end(), communicator) == active_.end()) {
      active_.push_back(std::move(communicator));
    }
  }
  doorbell_.ring();
}

// An exception of a communicator's operations ends that communicator: nobody else can report it. One of the
// round itself is followed by another round.
void ProgressThread::run() {
  bool goes_on = true;
  while (goes_on) {
    (void)contained(
        "a round of the progress thread", [&] { goes_on = look_around(); },
        [](const std::string&) { ::usleep(kAfterFailureUs); });
  }
}

bool ProgressThread::look_around() {
  // Announce the sleep before anything is looked at, the end included: a ring between a look and the
  // announcement would be lost.
  std::vector<Sleeper> sleepers;
  sleepers.emplace_back(doorbell_);
  if (stop_.load(std::memory_order_acquire)) return false;
  std::vector<std::shared_ptr<Communicator>> mine;
  {
    const std::lock_guard lock(mutex_);
    // Communicators that need no progress are dropped, which may destroy them. A thread that waits in
    // one, or the last one to stop waiting, wakes us again if operations remain.
    std::erase_if(active_, [](const auto& communicator) { return !communicator->needs_progress(); });
    mine = active_;
  }
  bool any = false;
  Deadline next = Deadline::never();
  // Without mutex_, so that wake() never waits for an operation.
  for (const auto& communicator : mine) {
    sleepers.emplace_back(communicator->rank_state().doorbell);
    (void)contained(
        "operations that nobody waits for", [&] { any |= communicator->progress(); },
        [&](const std::string& why) {
          any = true;
          (void)communicator->give_up({Code::kSystem, "its process could not go on: " + why});
        });
    next = Deadline::earlier(next, communicator->next_deadline());
  }
  // More communicators than can be slept on at once are looked at in turns, each millisecond.
  if (sleepers.size() > kMaxDoorbells) next = Deadline::earlier(next, Deadline::after_ms(1));
  if (!any) sleep_on_any(sleepers, next);
  return true;
}

}  // namespace hdt::client
