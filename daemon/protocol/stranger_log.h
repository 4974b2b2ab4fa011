// stranger_log.h: the log lines for connections that were closed before it was known whose they were.
// Strangers may connect as fast as they like, so there is at most one line a second; it says how many
// others it stands for.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/log.h"

namespace hdt::daemon {

// Not thread-safe: it belongs to the owner of the connections and is used on the owner's thread (the
// control thread, or an engine).
class StrangerLog {
 public:
  // Writes one line, unless the latest one is less than a second old; then the event is only counted.
  // `ended` names the connection, as the subject of a sentence.
  void say(const std::string& ended, const std::string& why, const std::string& node_name) {
    ++unsaid_;
    if (!next_.expired()) return;
    const std::string others =
        unsaid_ > 1 ? " (and " + std::to_string(unsaid_ - 1) + " others since the last such line)" : "";
    HDT_LOG_WARN("{}: {}{} {}", ended, why, others, LogTag{.node = node_name});
    unsaid_ = 0;
    next_ = Deadline::after_ms(kEveryMs);
  }

 private:
  static constexpr int64_t kEveryMs = 1'000;
  // events since the latest line, the current one included
  uint64_t unsaid_ = 0;
  // when the next line may be written
  Deadline next_ = Deadline::after_ms(0);
};

}  // namespace hdt::daemon
