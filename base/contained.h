// contained.h: limits the damage of an exception to the session, group, link or channel for which the work
// was done. The daemon's threads work for everybody, and nothing else on them catches exceptions: a failed
// allocation, a length that cannot be right, JSON of an unexpected shape.
//
// Rules for the caller:
// - Put contained() where the work is handed out, around the work for one session, group, link or channel.
// - `end` receives the reason and ends that one object. Nobody uses its half-finished state afterwards: a
//   failed group runs no piece any more, a closed link or channel is forgotten, and a session ends as if its
//   process had been killed.
// - State that others share is changed in steps that happen completely or not at all, such as the insertion
//   into a map.
// - A message to others is marked as sent after it has been sent, so that it is sent again if sending threw.
#pragma once

#include <unistd.h>

#include <exception>
#include <string>

#include "base/log.h"

namespace hdt {

// The pause after a round of a thread's work that threw. An error that repeats must not fill the log.
inline constexpr useconds_t kAfterFailureUs = 10'000;

// Writes the exception to the log, if there is memory for that. Returns its text, or "" without memory for
// the text.
inline std::string note_contained(const char* what, const std::exception& error) noexcept {
  try {
    std::string why = error.what();
    HDT_LOG_ERROR("{}: {}", what, why);
    return why;
  } catch (const std::exception&) {
    return {};
  }
}

// Runs `work` and returns true. If `work` throws, runs `end` with the reason and returns false. An exception
// of `end` is written to the log and dropped, so the caller must have a place that finds the object and ends
// it later.
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

// The same without `end`, for work that is repeated anyway.
template <typename Work>
bool contained(const char* what, Work&& work) {
  return contained(what, work, [](const std::string&) {});
}

}  // namespace hdt
