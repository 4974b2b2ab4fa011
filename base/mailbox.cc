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

void Mailbox::close() {
  std::vector<std::function<void()>> dropped;
  const std::lock_guard lock(mutex_);
  closed_ = true;
  dropped.swap(posted_);
}

}  // namespace hdt
