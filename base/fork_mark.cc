// fork_mark.cc: marks a process as one that uses HDT, so that its forked copies can be distinguished
// from it. The mark is a word on a page that the kernel zeroes in every child, which also covers
// children of a bare clone(); the handler of pthread_atfork() does the rest where it runs.
#include "base/fork_mark.h"

#include <pthread.h>

#include "base/unique_fd.h"
#include "base/wiped_page.h"

namespace hdt {

namespace fork_mark {
std::atomic<volatile uint32_t*> mark{nullptr};
}  // namespace fork_mark

namespace {

// Runs in the child, before fork() returns there. The parent's other threads may have been anywhere, so
// only async-signal-safe calls are allowed. vfork(), posix_spawn() and clone() do not call it.
void on_child() {
  volatile uint32_t* mark = fork_mark::mark.load(std::memory_order_acquire);
  if (mark == nullptr) return;
  *mark = 0;
  OwnedFds::close_all();
}

}  // namespace

// Takes no lock: if another thread forked meanwhile, the lock would stay locked in the child. If two
// threads are here at once, the mark of one counts and the other's page is unmapped; that the handler is
// then registered twice does no harm, as a second run finds an empty list. The release half of the
// exchange publishes the word 1 before the pointer; it pairs with the acquire in forked().
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
