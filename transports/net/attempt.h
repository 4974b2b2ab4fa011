// attempt.h: work that may throw for want of memory, and what is done then, as base/contained.h for those who
// link nothing that writes a log. A connection that ends for it says so by its kClosed.
#pragma once

#include <exception>
#include <utility>

namespace hdt::transport::tcp {

// Runs `work`; if that throws `otherwise`, which must not, and false is returned.
template <typename Work, typename Otherwise>
bool attempt(Work&& work, Otherwise&& otherwise) {
  try {
    work();
    return true;
  } catch (const std::exception&) {
    otherwise();
    return false;
  }
}

template <typename Work>
bool attempt(Work&& work) {
  return attempt(work, [] {});
}

// The same where `owner` hears of it: owner.on_failure(), which must not throw.
template <typename Owner, typename Work>
bool attempt_for(Owner& owner, Work&& work) {
  return attempt(work, [&owner] { owner.on_failure(); });
}

}  // namespace hdt::transport::tcp
