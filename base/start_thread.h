// start_thread.h: starting threads, which the limits of a user, a cgroup or the machine can refuse.
#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/limits.h"
#include "base/log.h"

namespace hdt {

// Starts a thread that has `name` (at most 15 bytes are kept) and runs `body`. kSystem if a limit
// refuses the thread; the message names the limits. std::thread reports that by an exception, which
// would end a daemon.
template <typename Body>
Result<std::thread> start_thread(const std::string& name, Body body) {
  try {
    return std::thread([name, body = std::move(body)]() mutable {
      set_thread_name(name);
      body();
    });
  } catch (const std::system_error& error) {
    return thread_refused(name, error.code().value());
  }
}

}  // namespace hdt
