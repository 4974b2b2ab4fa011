// fork_mark.h: whether this process is a copy, made by fork(), of one that had used HDT. A copy has the
// parent's handles, descriptors and locks, but none of its threads, and it is no rank: it can call nothing,
// and at its end nothing of HDT may run that would reach the parent's daemon or wait for a thread that is not
// there.
//
// Descriptors that the library owns are closed in the child at once (base/unique_fd.h), and what it maps is
// not there (base/shared_memory.h; memory of hdtMemAlloc is, as it is the user's): a child keeps nothing
// alive of a parent that has ended. Children of vfork and posix_spawn have none of it after exec, as every
// descriptor is close-on-exec. A child of a bare clone() keeps the descriptors, as no handler runs there; all
// else holds for it, too.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/status.h"

namespace hdt {

namespace fork_mark {
// Null until HDT is used; then 1 in the process that used it, and 0 in every copy of it.
extern std::atomic<volatile uint32_t*> mark;
}  // namespace fork_mark

// One load, or two: for every entry point.
inline bool forked() {
  const volatile uint32_t* mark = fork_mark::mark.load(std::memory_order_acquire);
  return mark != nullptr && *mark == 0;
}

// To be called before this process makes its first thread, descriptor or mapping of HDT. Any thread, any
// number of times.
Status mark_use();
// What every call says in a copy: kInvalidUsage, and what to do.
const char* copy_text();
inline Status copy_refused() { return {Code::kInvalidUsage, copy_text()}; }

// An object that is destroyed when the process exits, but never in a copy of the process: there it may have
// been in the hands of another thread when the copy was made.
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
