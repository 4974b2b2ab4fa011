// stranger_log.h: what the log says of connections of others that were ended before anybody knew whose they
// were: one line a second with a count, as strangers may come as fast as they like.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/log.h"

namespace hdt::daemon {

class StrangerLog {
 public:
  // `ended`: which one, in words. Owner and thread: whoever owns the connections.
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
  uint64_t unsaid_ = 0;
  Deadline next_ = Deadline::after_ms(0);
};

}  // namespace hdt::daemon
