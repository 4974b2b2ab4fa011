// mailbox.cc: the queue and its eventfd. Both change under the lock, so the eventfd is readable exactly
// while the queue is not empty. Only the first post after a run() makes a system call.
#include "base/mailbox.h"

#include <sys/eventfd.h>

#include <cerrno>

#include "base/contained.h"

namespace hdt {

Mailbox::Mailbox() : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!event_.valid()) status_ = Status::from_errno("eventfd", errno);
}

void Mailbox::post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  posted_.push_back(std::move(work));
  if (posted_.size() == 1) ::eventfd_write(event_.get(), 1);
}

// The queue is taken out under the lock and run outside of it, so that work may post and so that posting
// threads do not wait for it.
bool Mailbox::run() {
  std::vector<std::function<void()>> work;
  {
    const std::lock_guard lock(mutex_);
    if (posted_.empty()) return false;
    work.swap(posted_);
    eventfd_t count = 0;
    ::eventfd_read(event_.get(), &count);
  }
  for (auto& item : work) (void)contained("work handed to a thread", item);
  return true;
}

// `dropped` is declared before the lock, so the destructors of dropped work run after the lock is
// released: they may take other locks.
void Mailbox::close() {
  std::vector<std::function<void()>> dropped;
  const std::lock_guard lock(mutex_);
  closed_ = true;
  dropped.swap(posted_);
}

}  // namespace hdt
