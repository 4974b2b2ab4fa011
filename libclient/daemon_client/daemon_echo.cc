// daemon_echo.cc: one round trip is: count echo_asked up, ring the engine, spin until echo_given has the
// same number (daemon/group/engine_group_seats.cc). This is how a call and its result travel, without
// the work.
#include "libclient/daemon_client/daemon_echo.h"

#include <vector>

#include "base/clock.h"
#include "base/median.h"
#include "libclient/common/spin.h"

namespace hdt::client {

namespace {

// The number of round trips. The first one wakes the engine; one outlier does not change the median.
constexpr uint32_t kTurns = 17;
// The maximum for all of them, in ms.
constexpr int64_t kEchoMs = 50;

}  // namespace

void measure_echo(const NodeAccess& access) {
  ipc::RankState& rank_state = access.rank_state();
  const Deadline until = Deadline::after_ms(kEchoMs);
  const int quick = quick_rounds(access.layout());
  std::vector<double> took_ns;
  for (uint32_t turn = 1; turn <= kTurns; ++turn) {
    const int64_t asked_ns = now_ns();
    // release and acquire, as between any rank and its engine.
    rank_state.echo_asked.store(turn, std::memory_order_release);
    access.ring_daemon();
    const auto answered = [&] { return rank_state.echo_given.load(std::memory_order_acquire) == turn; };
    while (!spin(quick, answered)) {
      // A daemon that hangs, or is suspended, leaves the value at 0: not measured.
      if (until.expired()) return;
    }
    took_ns.push_back(static_cast<double>(now_ns() - asked_ns));
  }
  rank_state.echo_ns.store(static_cast<uint64_t>(median(took_ns)), std::memory_order_release);
}

}  // namespace hdt::client
