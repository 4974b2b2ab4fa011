// doorbell_test.cc: sleeping on several doorbells, with the kernel's call for it and without.
#include "base/doorbell.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>
#include <vector>

namespace hdt {
namespace {

// From here on futex_waitv fails in this thread, as it does where the kernel has none.
bool without_waitv(int error) {
  std::array<sock_filter, 4> program = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),  // the call's number, the first field of seccomp_data
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex_waitv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{program.size(), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// How often a thread looks while it waits for a ring of the last of `count` doorbells.
int looks_until_rung(size_t count, int missing_call_error) {
  std::vector<Doorbell> doorbells(count);
  std::atomic<bool> done{false};
  std::atomic<bool> refused{false};
  int looks = 0;
  std::thread waiter([&] {
    if (missing_call_error != 0 && !without_waitv(missing_call_error)) {
      refused = true;
      return;
    }
    for (;;) {
      std::vector<Sleeper> sleepers;
      for (Doorbell& doorbell : doorbells) sleepers.emplace_back(doorbell);
      ++looks;
      if (done.load()) return;
      sleep_on_any(sleepers, Deadline::after_ms(60'000));
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  done.store(true);
  doorbells.back().ring();
  waiter.join();
  return refused ? -1 : looks;
}

TEST(SleepOnAny, SleepsUntilOneOfThemIsRung) {
  EXPECT_LE(looks_until_rung(1, 0), 10);
  EXPECT_LE(looks_until_rung(3, 0), 10);
}

// It looks about every millisecond, and does not spin: that would be 100,000 times and more.
TEST(SleepOnAny, SleepsAlsoWhereTheKernelCannotWaitForSeveral) {
  for (const int error : {ENOSYS, EPERM}) {
    const int looks = looks_until_rung(3, error);
    if (looks < 0) GTEST_SKIP() << "no system-call filter can be set here";
    EXPECT_GT(looks, 1);
    EXPECT_LT(looks, 5'000);
    EXPECT_LE(looks_until_rung(1, error), 10) << "one needs no call that is missing";
  }
}

// Two threads that wait for each other and sleep at once, as ranks do whose cores others want. A ring that is
// lost leaves both asleep; only then do the deadlines pass.
TEST(Doorbell, WakesWhoeverSleepsAtOnce) {
  constexpr int kTurns = 20'000;
  std::array<Doorbell, 2> doorbells;
  std::atomic<int> turn{0};
  std::atomic<bool> lost{false};
  const auto play = [&](int self) {
    for (int mine = self; mine < kTurns && !lost; mine += 2) {
      const Deadline until = Deadline::after_ms(30'000);
      while (turn.load(std::memory_order_acquire) != mine && !lost) {
        const Sleeper sleeper(doorbells[static_cast<size_t>(self)]);
        if (turn.load(std::memory_order_acquire) == mine) break;
        sleeper.sleep(until);
        if (until.expired()) lost = true;
      }
      turn.store(mine + 1, std::memory_order_release);
      doorbells[static_cast<size_t>(1 - self)].ring();
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_FALSE(lost);
  EXPECT_EQ(turn.load(), kTurns);
}

}  // namespace
}  // namespace hdt
