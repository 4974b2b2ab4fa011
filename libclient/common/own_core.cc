#include "libclient/common/own_core.h"

#include "base/clock.h"
#include "libclient/common/spin.h"

namespace hdt::client {

namespace {

// A rank that was moved by the scheduler a moment ago may be moved again, so a few waits are not enough.
constexpr uint32_t kSharedWaits = 16;
// Where other processes want the cores, too, moving does not help for long.
constexpr int64_t kBetweenMovesNs = 100 * kNsPerMs;

}  // namespace

// The numbers are foreign: any rank of the node can write them. A wrong one costs speed only.
int OwnCore::quick_rounds() {
  publish();
  const ipc::Layout& layout = access_.layout();
  const int rounds = client::quick_rounds(layout);
  // More ranks than cores have to share, and the scheduler does that well.
  if (rounds == 0) return 0;
  const uint32_t own = access_.rank_state().processor.load(std::memory_order_relaxed);
  bool together = false;
  bool leaves = false;
  cpu_set_t taken;
  CPU_ZERO(&taken);
  for (uint32_t i = 0; i < layout.local_ranks; ++i) {
    if (i == access_.local) continue;
    const uint32_t other = access_.segment.rank_state(i).processor.load(std::memory_order_relaxed);
    if (other == 0 || other > CPU_SETSIZE) continue;  // not told yet, or no processor
    CPU_SET(other - 1, &taken);
    if (other != own) continue;
    together = true;
    leaves = leaves || i < access_.local;
  }
  if (!together) {
    if (shared()) shared_waits_.store(0, std::memory_order_relaxed);
    return rounds;
  }
  if (shared_waits_.fetch_add(1, std::memory_order_relaxed) + 1 < kSharedWaits || !leaves) return 0;
  const int64_t now = now_ns();
  if (now < not_before_ns_.load(std::memory_order_relaxed)) return 0;
  not_before_ns_.store(now + kBetweenMovesNs, std::memory_order_relaxed);
  if (!leave_processors(taken)) return 0;
  shared_waits_.store(0, std::memory_order_relaxed);
  publish();
  return rounds;
}

bool leave_processors(const cpu_set_t& taken) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  cpu_set_t others;
  CPU_AND(&others, &allowed, &taken);
  CPU_XOR(&others, &allowed, &others);
  // A thread that runs outside of a new mask is on a processor of that mask when the call returns.
  if (CPU_COUNT(&others) == 0 || ::sched_setaffinity(0, sizeof others, &others) != 0) return false;
  return ::sched_setaffinity(0, sizeof allowed, &allowed) == 0;
}

}  // namespace hdt::client
