// attempt.h: limits the damage of an exception to one connection, as base/contained.h does for the daemon.
// Backends use this one because they are linked without a log. The exception here is mostly that of an
// allocation without memory. The connection then ends, and its kClosed carries the reason.
#pragma once

#include <exception>
#include <utility>

namespace hdt::transport::tcp {

// Runs `work` and returns true. If `work` throws, runs `otherwise`, which must not throw, and returns false.
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

// The same without anything to do after an exception.
template <typename Work>
bool attempt(Work&& work) {
  return attempt(work, [] {});
}

// The same, and calls owner.on_failure() after an exception, which must not throw.
template <typename Owner, typename Work>
bool attempt_for(Owner& owner, Work&& work) {
  return attempt(work, [&owner] { owner.on_failure(); });
}

}  // namespace hdt::transport::tcp
