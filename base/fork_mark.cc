#include "base/fork_mark.h"

#include <pthread.h>

#include "base/unique_fd.h"
#include "base/wiped_page.h"

namespace hdt {

namespace fork_mark {
std::atomic<volatile uint32_t*> mark{nullptr};
}  // namespace fork_mark

namespace {

// Runs in the child, whose parent may have been anywhere: async-signal-safe. Not called by vfork, posix_spawn
// and clone.
void on_child() {
  volatile uint32_t* mark = fork_mark::mark.load(std::memory_order_acquire);
  if (mark == nullptr) return;
  *mark = 0;
  OwnedFds::close_all();
}

}  // namespace

// No lock: a thread that forks meanwhile would leave it locked in the child. Of two threads that are here at
// once, one's mark counts; that the handler is there twice does not matter.
Status mark_use() {
  if (fork_mark::mark.load(std::memory_order_acquire) != nullptr) return Status::ok();
  auto page = WipedPage::make();
  if (!page.is_ok()) return page.status();
  auto* fresh = static_cast<volatile uint32_t*>(page.value().data());
  *fresh = 1;
  if (const int error = ::pthread_atfork(nullptr, nullptr, on_child); error != 0) {
    return Status::from_errno("pthread_atfork", error);
  }
  volatile uint32_t* none = nullptr;
  if (fork_mark::mark.compare_exchange_strong(none, fresh, std::memory_order_acq_rel)) {
    (void)page.value().release();  // kept: a child may look at it for as long as it runs
  }
  return Status::ok();
}

const char* copy_text() {
  return "this process was made by fork() after its parent had used HDT, and cannot use it: start the worker "
         "with exec "
         "or spawn (in Python: the start method \"spawn\" or \"forkserver\"), or fork before the first call "
         "of HDT";
}

}  // namespace hdt
