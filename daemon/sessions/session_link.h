// session_link.h: what the daemon's threads share about one session (a process): its page and how to know it
// rang.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/shared_memory.h"
#include "base/unique_fd.h"
#include "ipc/page.h"

namespace hdt::daemon {

struct SessionLink {
  uint64_t number = 0;
  uint32_t pid = 0;
  uint32_t uid = 0;
  SharedMemory memory;             // a SessionPage
  std::vector<UniqueFd> eventfds;  // per engine: written by the process when the engine sleeps
  session::SessionPage& page() const { return *reinterpret_cast<session::SessionPage*>(memory.data()); }
};

}  // namespace hdt::daemon
