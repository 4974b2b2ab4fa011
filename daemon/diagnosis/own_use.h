// own_use.h: what the process uses, counted: what does not come back after groups have ended is a leak. For
// an embedded daemon it is the whole process that is counted.
#pragma once

#include <cstdint>

namespace hdt::daemon {

struct OwnUse {
  uint64_t descriptors = 0;
  uint64_t descriptors_allowed = 0;
  uint64_t listening = 0;  // sockets of the internet families that listen or are bound without a peer
  uint64_t connected = 0;  // and those that have a peer
  uint64_t threads = 0;
  uint64_t memory_bytes = 0;     // resident, what it shares with processes included
  uint64_t shared_memories = 0;  // segments, pages of sessions, what processes share
  uint64_t shared_bytes = 0;     // mapped for them
};

// Two system calls for each descriptor: what was counted is good for 100 ms, so that nobody keeps a thread
// busy by asking. For one thread.
OwnUse own_use_now();

}  // namespace hdt::daemon
