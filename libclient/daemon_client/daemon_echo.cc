#include "libclient/daemon_client/daemon_echo.h"

#include <vector>

#include "base/clock.h"
#include "base/median.h"
#include "libclient/common/spin.h"

namespace hdt::client {

namespace {

constexpr uint32_t kTurns = 17;  // the first wakes the engine
constexpr int64_t kEchoMs = 50;  // for all of them

}  // namespace

void measure_echo(const NodeAccess& access) {
  session::Board& board = access.board();
  const Deadline until = Deadline::after_ms(kEchoMs);
  const int quick = quick_rounds(access.layout());
  std::vector<double> took_ns;
  for (uint32_t turn = 1; turn <= kTurns; ++turn) {
    const int64_t asked_ns = now_ns();
    board.echo_asked.store(turn, std::memory_order_release);
    access.ring_daemon();
    const auto answered = [&] { return board.echo_given.load(std::memory_order_acquire) == turn; };
    while (!spin(quick, answered)) {
      if (until.expired()) return;
    }
    took_ns.push_back(static_cast<double>(now_ns() - asked_ns));
  }
  board.echo_ns.store(static_cast<uint64_t>(median(took_ns)), std::memory_order_release);
}

}  // namespace hdt::client
