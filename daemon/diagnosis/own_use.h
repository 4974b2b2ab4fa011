// own_use.h: what this process uses of the system. For tests and operators: what does not come back after
// groups have ended is a leak. In an embedded daemon the whole process is counted, the program included.
#pragma once

#include <cstdint>

namespace hdt::daemon {

// A count at one moment.
struct OwnUse {
  // open descriptors, and the soft limit of them
  uint64_t descriptors = 0;
  uint64_t descriptors_allowed = 0;
  // sockets of the internet families that have no peer: they listen, or are only bound
  uint64_t listening = 0;
  // sockets of these families that have a peer
  uint64_t connected = 0;
  uint64_t threads = 0;
  // resident memory, including what it shares with other processes
  uint64_t memory_bytes = 0;
  // shared memory that is mapped: segments, sessions' pages, what processes share
  uint64_t shared_memories = 0;
  // their size together
  uint64_t shared_bytes = 0;
};

// Counts. That takes two system calls for each descriptor, so a count is kept for 100 ms: nobody can keep
// a thread busy by asking. Not thread-safe: for the control thread only.
OwnUse own_use_now();

}  // namespace hdt::daemon
