#include "libclient/reach.h"

#include <sys/uio.h>

namespace hdt::client {

namespace {

constexpr uint32_t kCannot = 1;
constexpr uint32_t kCan = 2;
constexpr uint64_t kPattern = 0x6864742d72656163;  // what the word of every process holds

// Written by others with the value it has, so that no two processes can disagree about it.
volatile uint64_t word = kPattern;

}  // namespace

Reach::Reach(const NodeAccess& access) : access_(access) {
  access.board().reach_word.store(reinterpret_cast<uint64_t>(&word), std::memory_order_release);
}

bool Reach::try_all() const {
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    if (i == access_.local) continue;
    const session::Board& board = access_.segment.board(i);
    uint64_t value = 0;
    const iovec local{&value, sizeof value};
    const iovec remote{reinterpret_cast<void*>(board.reach_word.load(std::memory_order_acquire)),
                       sizeof value};
    const auto pid = static_cast<pid_t>(board.pid.load(std::memory_order_relaxed));
    if (::process_vm_readv(pid, &local, 1, &remote, 1, 0) != sizeof value || value != kPattern) return false;
    if (::process_vm_writev(pid, &local, 1, &remote, 1, 0) != sizeof value) return false;
  }
  return true;
}

Reach::Answer Reach::ask() {
  if (known_ != Answer::kNotYet) return known_;
  session::Board& mine = access_.board();
  if (mine.reach.load(std::memory_order_relaxed) == 0) {
    mine.reach.store(try_all() ? kCan : kCannot, std::memory_order_release);
    access_.ring_peers();
  }
  Answer answer = Answer::kYes;
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    const uint32_t told = access_.segment.board(i).reach.load(std::memory_order_acquire);
    if (told == 0) return Answer::kNotYet;
    if (told != kCan) answer = Answer::kNo;
  }
  return known_ = answer;
}

}  // namespace hdt::client
