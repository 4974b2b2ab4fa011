// thread_messenger.h: the ranks of a run as threads of one process, talking through shared queues. For tests.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "training/engine/layout.h"
#include "training/engine/messenger.h"
#include "training/engine/ownership.h"

namespace hdt::training::testing {

// The state that all ranks share. Every wait has a deadline: a deadlock of the engine ends in a failed test.
// Only those are woken that wait for what has come: with all of them, waking took two thirds of the time.
class ThreadWorld {
 public:
  explicit ThreadWorld(const Layout& layout);
  // The messenger of one rank; used by one thread.
  std::unique_ptr<Messenger> messenger(int rank);
  // Operations on owner sets that were started so far, over all ranks.
  int sums_started();

 private:
  friend class ThreadMessenger;
  friend class ThreadReceive;
  friend class ThreadSum;

  // One collective: contributions in the order of members, so that the sum is the same bits every time.
  struct Collective {
    std::map<size_t, std::vector<double>> contributions;  // by member
    size_t collected = 0;                                 // members that have taken the result
  };
  // A group of ranks; members call it in the same order.
  struct Group {
    std::vector<int> ranks;        // an owner set's in the order of replicas
    std::map<int, int64_t> calls;  // by rank
    std::map<int64_t, Collective> open;
    std::condition_variable complete;  // one of `open`

    size_t member(int rank) const { return std::ranges::find(ranks, rank) - ranks.begin(); }
  };

  struct Message {
    NumberType type;
    std::vector<std::byte> bytes;
  };
  struct Queue {
    std::deque<Message> messages;
    std::condition_variable arrived;
  };

  // False if `ready` was not true in time.
  static bool wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                   const std::function<bool()>& ready);

  const Layout layout_;
  std::mutex mutex_;
  std::map<std::pair<int, int>, Queue> queues_;  // by (from, to)
  // That of an owner set. Sets of the same ranks share one, as they do in libhdt's messenger.
  Group& group_of(int owner_set) { return owner_groups_[group_of_[owner_set]]; }

  std::deque<Group> owner_groups_;  // by the first owner set with their ranks
  std::vector<int> group_of_;       // by owner set
  Group world_;
  std::deque<Group> replica_groups_;
  int sums_started_ = 0;
};

// Runs `body(rank)` on a thread per rank and returns when all are done.
void run_ranks(int ranks, const std::function<void(int rank)>& body);

}  // namespace hdt::training::testing
