// contained.h: what goes wrong with one session, group, link or channel ends that one alone. Nothing else catches
// exceptions of threads on which everybody's work is done: memory that is not there, a length that is none, JSON
// that surprises. (The tcp backend has `attempt` for it: it links nothing that writes a log.)
//
// Work is contained where it is handed out for one of them: `end` is told why, and ends that one. What may be half
// done is used by nobody then: a group that has failed runs no piece any more, a link or channel that is closed is
// forgotten, and a session's end is what a killed process would leave. What is shared by all is changed by steps
// that either happen or do not (an entry of a map is there or is not), and what must be told to others is marked as
// told after it has been.
#pragma once

#include <unistd.h>

#include <exception>
#include <string>

#include "base/log.h"

namespace hdt {

// After a round of a thread's work that has failed: what fails again and again must not fill the log.
inline constexpr useconds_t kAfterFailureUs = 10'000;

// Says so in the log, if even that can be done. Returns the exception's words; without memory for them "".
inline std::string note_contained(const char* what, const std::exception& error) noexcept {
  try {
    std::string why = error.what();
    HDT_LOG_ERROR("{}: {}", what, why);
    return why;
  } catch (const std::exception&) {
    return {};
  }
}

// Runs `work`. If that throws, runs `end` with the reason, and false is returned. If `end` throws as well it has to
// be such that somebody comes back to it.
template <typename Work, typename End>
bool contained(const char* what, Work&& work, End&& end) {
  try {
    work();
    return true;
  } catch (const std::exception& error) {
    const std::string why = note_contained(what, error);
    try {
      end(why);
    } catch (const std::exception& again) {
      (void)note_contained(what, again);
    }
    return false;
  }
}

// For work that is done again anyhow.
template <typename Work>
bool contained(const char* what, Work&& work) {
  return contained(what, work, [](const std::string&) {});
}

}  // namespace hdt
