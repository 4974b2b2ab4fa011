// page.h: the page one session (a process) shares with the daemon: how a process gets the daemon's attention
// without a system call while an engine is awake. It holds hints only; a process that writes nonsense harms
// itself.
#pragma once

#include <atomic>
#include <cstdint>

namespace hdt::session {

inline constexpr uint32_t kMaxEngines = 16;
inline constexpr uint32_t kAttentionWords = 16;  // 64 groups each; handles beyond share bits

struct alignas(64) EngineBell {
  // Set by the engine before it sleeps; a process that sees 1 after setting its bit writes the engine's
  // eventfd.
  std::atomic<uint32_t> asleep{0};
  alignas(64) std::atomic<uint64_t> attention[kAttentionWords] = {};  // bit (handle % 1024)
};

struct SessionPage {
  EngineBell engines[kMaxEngines];
};

}  // namespace hdt::session
