// parameter_gatherer.h: after an update of shards, every owner gets the parameters that the others have
// updated.
#pragma once

#include <deque>
#include <limits>
#include <span>

#include "base/status.h"
#include "training/engine/messenger.h"
#include "training/engine/shards.h"
#include "training/engine/unit_memory.h"

namespace hdt::training {

// One rank's allgathers. The trainer owns it and calls it on its own thread; they proceed in the background.
// Between start() and finish() the parameters of others' shards may be old or new, so nobody may read them
// before finish() has been called for their unit. All members of an owner set start its buckets in the same
// order.
class ParameterGatherer {
 public:
  // Buckets, memory and messenger must outlive the gatherer.
  ParameterGatherer(std::span<const BucketShards> buckets, UnitMemory& memory, Messenger& messenger)
      : buckets_(buckets), memory_(memory), messenger_(messenger) {}

  // Starts the allgather of each bucket that is cut, in the order in which forward needs them. A failure is
  // kept for finish().
  void start();
  // Waits for those of all units up to this one; nothing to do if none of them is under way.
  Status finish(int unit);
  // Waits for all of them.
  Status finish() { return finish(std::numeric_limits<int>::max()); }

  // Ends those under way: their groups fail (Operation).
  void give_up() { under_way_.clear(); }

 private:
  std::span<const BucketShards> buckets_;
  UnitMemory& memory_;
  Messenger& messenger_;
  struct Gathering {
    int first_unit = 0;
    Pending operation;
  };
  std::deque<Gathering> under_way_;  // first units first
  Status failure_;                   // the first one; it stays
};

}  // namespace hdt::training
