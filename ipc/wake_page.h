// wake_page.h: the wake page (`WakePage`) that one session, which is one process, shares with its daemon.
// Through it a process gets an engine's attention without a system call while the engine is awake. The
// page holds hints only: the engine looks at the groups of the bits that are set, and a process that
// writes nonsense wakes the engine for nothing.
#pragma once

#include <atomic>
#include <cstdint>

namespace hdt::ipc {

// The maximum of `node.threads`; the page has a bell for each.
inline constexpr uint32_t kMaxEngines = 16;
// 64 handles each. Handles that are equal modulo 1,024 share a bit; the engine then looks at all of
// them.
inline constexpr uint32_t kAttentionWords = 16;

// The bell of one engine for one process. Neither side may miss the other: the process sets its bit and
// then reads `asleep`, the engine sets `asleep` and then reads the bits once more, all with sequentially
// consistent operations. So at least one of the two sees the other's store.
struct alignas(64) EngineBell {
  // Written by the engine: 1 before it sleeps, 0 when it is awake. A process that sees 1 after it has
  // set its bit writes to the engine's eventfd, which wakes it.
  std::atomic<uint32_t> asleep{0};
  // Bit (handle % 1024): the group with this handle has something new. Set by any thread of the process;
  // fetched and cleared by the engine.
  alignas(64) std::atomic<uint64_t> attention[kAttentionWords] = {};
};

// One for each session, made by the daemon and sent with kWelcome (messages.h).
struct WakePage {
  EngineBell engines[kMaxEngines];
};

}  // namespace hdt::ipc
