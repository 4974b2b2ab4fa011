// local_work.h: what one rank does for a collective call in a group of one node, once it can reach what the
// others contribute: which elements it combines or copies, from whom, to whom. Pure arithmetic on the call;
// the doing is local_mover.h's.
//
// Two ways to share the work:
//   kOwnResult   everyone computes its own result from all contributions: no second meeting (small messages)
//   kShares      everyone computes a share and delivers it to all who need it: no element is combined twice
#pragma once

#include <cstdint>

#include "ipc/call.h"
#include "libclient/common/share.h"

namespace hdt::client {

enum class Sharing : uint8_t { kOwnResult, kShares };

inline constexpr int kEveryone = -1;

// Elements [from, from + count) of contributions to [to, to + count) of results. Ranks are of the group,
// which is of one node, so rank and local index are the same.
struct Task {
  enum class Kind : uint8_t { kCombine, kCopy };
  Kind kind;
  int source;       // kCopy: whose sendbuf; kCombine: kEveryone
  int destination;  // whose recvbuf, or kEveryone
  uint64_t from;
  uint64_t to;
  uint64_t count;
};

// True if ranks write to each other's results when they share the work.
constexpr bool writes_to_others(collectives::Collective what) {
  using collectives::Collective;
  return what == Collective::kAllReduce || what == Collective::kReduce || what == Collective::kBroadcast;
}

// Calls `run(const Task&)` for each task of rank `me`; stops when it returns false, and returns what it
// returned. No allocation: an operation of 8 bytes passes through here, too.
template <typename Run>
bool for_each_task(const session::Call& call, uint32_t ranks, uint32_t me, Sharing sharing, Run run) {
  using collectives::Collective;
  const uint64_t n = call.count;
  if (n == 0) return true;
  const auto self = static_cast<int>(me);
  const bool shares = sharing == Sharing::kShares;
  const auto [first, count] = shares ? share_of(n, ranks, me) : Share{0, n};
  const int receiver = shares ? kEveryone : self;
  switch (call.what) {
    case Collective::kAllReduce:
      return count == 0 || run(Task{Task::Kind::kCombine, kEveryone, receiver, first, first, count});
    case Collective::kReduce:
      if (count == 0 || (!shares && self != call.root)) return true;
      return run(Task{Task::Kind::kCombine, kEveryone, call.root, first, first, count});
    case Collective::kReduceScatter:
      return run(Task{Task::Kind::kCombine, kEveryone, self, me * n, 0, n});
    case Collective::kAllGather:
      for (uint32_t i = 0; i < ranks; ++i) {
        const uint32_t peer = (me + i) % ranks;  // not all from the same one at a time
        if (!run(Task{Task::Kind::kCopy, static_cast<int>(peer), self, 0, peer * n, n})) return false;
      }
      return true;
    case Collective::kBroadcast:
      return count == 0 || run(Task{Task::Kind::kCopy, call.root, receiver, first, first, count});
    case Collective::kBarrier:
      return true;
  }
  return true;
}

}  // namespace hdt::client
