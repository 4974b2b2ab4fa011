// session_link.h: what the daemon's threads share about one session (a connected process): its page and
// the eventfds with which the process wakes engines. ClientSessions makes it when the session is greeted;
// the control thread and all engines hold it by shared_ptr. Nothing in it changes after that except the
// page's content, which the process writes as well.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/shared_memory.h"
#include "base/unique_fd.h"
#include "ipc/wake_page.h"

namespace hdt::daemon {

// See ipc::WakePage (ipc/wake_page.h) for how a process wakes an engine without a system call.
struct SessionLink {
  // the session's number, unique in the life of the daemon
  uint64_t number = 0;
  // the process, as the kernel reported it; 0: it has no number here
  uint32_t pid = 0;
  uint32_t uid = 0;
  // holds the WakePage; the process has it mapped, so what is read from it is foreign
  SharedMemory memory;
  // by engine: the process writes to it when that engine sleeps
  std::vector<UniqueFd> eventfds;
  ipc::WakePage& page() const { return *reinterpret_cast<ipc::WakePage*>(memory.data()); }
};

}  // namespace hdt::daemon
