// fork_mark.h: whether this process is a copy, made by fork(), of a process that had used HDT. Such a
// copy has the parent's handles, descriptors and locks, but none of its threads, and it is no rank. So
// it may call nothing of HDT. At its exit nothing of HDT may run that would reach the parent's daemon or
// wait for a thread that does not exist in the copy.
//
// A child keeps little:
// - The descriptors that the library owns are closed in the child at once (base/unique_fd.h).
// - The library's mappings are not in the child (base/shared_memory.h). Memory of hdtMemAlloc is there,
//   because it is the user's. A child thus keeps nothing alive of a parent that has ended.
// - Children of vfork() and posix_spawn() have no descriptor after exec, as every one is close-on-exec.
// - A child of a bare clone() keeps the descriptors, as no handler runs there. All else holds for it,
//   too.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/status.h"

namespace hdt {

namespace fork_mark {
// Null until HDT is used. Then it points to a word that is 1 in the process that used HDT and 0 in every
// copy of it, because the word lies on a page that the kernel wipes on fork (base/wiped_page.h).
extern std::atomic<volatile uint32_t*> mark;
}  // namespace fork_mark

// Whether this process is such a copy. One or two loads, so every entry point can ask. Any thread; also
// in a child that has just been forked. The acquire pairs with the exchange in mark_use(): a thread that
// sees the pointer also sees the word.
inline bool forked() {
  const volatile uint32_t* mark = fork_mark::mark.load(std::memory_order_acquire);
  return mark != nullptr && *mark == 0;
}

// Marks this process as one that uses HDT. To be called before the process makes its first thread,
// descriptor or mapping of HDT. Any thread, any number of times. kSystem: the page or the handler cannot
// be made.
Status mark_use();
// The message of every call in a copy: it says what the user can do.
const char* copy_text();
// The same as kInvalidUsage.
inline Status copy_refused() { return {Code::kInvalidUsage, copy_text()}; }

// An object of static lifetime that is destroyed when the process exits, but never in a copy of the
// process: another thread of the parent may have been using it when the copy was made, so its state
// there may be torn and its locks may be held for ever.
template <typename T>
class KeptInCopies {
 public:
  KeptInCopies() : object_(new T) {}
  ~KeptInCopies() {
    if (!forked()) delete object_;
  }
  KeptInCopies(const KeptInCopies&) = delete;
  KeptInCopies& operator=(const KeptInCopies&) = delete;
  T& operator*() const { return *object_; }

 private:
  T* const object_;
};

}  // namespace hdt
