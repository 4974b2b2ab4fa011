// local_work.h: the part of one rank in a collective call of a group of one node, once it can reach what
// the others contribute: which elements it combines or copies, from whom, to whom. Pure arithmetic on
// the call; local_mover.h does the work.
//
// There are two protocols to share the work:
//   kOwnResult   every rank computes its own result from all contributions: no second meeting (small calls)
//   kShares      every rank computes a share and delivers it to all who need it: no element is combined twice
#pragma once

#include <cstdint>

#include "ipc/call.h"
#include "libclient/common/share.h"

namespace hdt::client {

enum class Sharing : uint8_t { kOwnResult, kShares };

// In place of a rank: all of them.
inline constexpr int kEveryone = -1;

// Elements [from, from + count) of contributions go to [to, to + count) of results. Ranks are those of
// the group; as it is of one node, rank and local index are the same.
struct Task {
  enum class Kind : uint8_t { kCombine, kCopy };
  Kind kind;
  // kCopy: whose sendbuf. kCombine: kEveryone.
  int source;
  // Whose recvbuf, or kEveryone.
  int destination;
  // In elements, from the beginning of the user's buffers.
  uint64_t from;
  uint64_t to;
  uint64_t count;
};

// True if ranks write to each other's recvbufs when they share the work. In a reduce-scatter and an
// allgather each rank's result is its own work in any case.
constexpr bool writes_to_others(collectives::Collective what) {
  using collectives::Collective;
  return what == Collective::kAllReduce || what == Collective::kReduce || what == Collective::kBroadcast;
}

// Calls `run(const Task&)` for each task of rank `me`. Stops when `run` returns false, and returns what
// it returned last (true if there are no tasks). It allocates nothing: an operation of 8 bytes passes
// through here, too.
template <typename Run>
bool for_each_task(const ipc::Call& call, uint32_t ranks, uint32_t me, Sharing sharing, Run run) {
  using collectives::Collective;
  const uint64_t n = call.count;
  if (n == 0) return true;
  const auto self = static_cast<int>(me);
  const bool shares = sharing == Sharing::kShares;
  // The range that this rank works on, of calls in which the work can be shared.
  const auto [first, count] = shares ? share_of(n, ranks, me) : Share{0, n};
  // The ranks that get its result.
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
        // Each rank begins with itself, so that not all ranks read from the same one at a time.
        const uint32_t peer = (me + i) % ranks;
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
