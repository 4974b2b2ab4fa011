// parameter_gatherer.h: after an update of shards, every owner gets the parameters that the others have
// updated.
#pragma once

#include <span>
#include <vector>

#include "base/status.h"
#include "training/engine/messenger.h"
#include "training/engine/shards.h"
#include "training/engine/unit_memory.h"

namespace hdt::training {

// One rank's allgathers. The trainer owns it and calls it on its own thread; they proceed in the background.
// Between start() and finish() the parameters of others' shards may be old or new, so nobody may read them.
// All members of an owner set start its buckets in the same order.
class ParameterGatherer {
 public:
  // Buckets, memory and messenger must outlive the gatherer.
  ParameterGatherer(std::span<const BucketShards> buckets, UnitMemory& memory, Messenger& messenger)
      : buckets_(buckets), memory_(memory), messenger_(messenger) {}

  // Starts the allgather of each bucket that is cut, in the order in which forward needs them. A failure is
  // kept for finish().
  void start();
  // Waits for all of them; nothing to do if none is under way.
  Status finish();

  // Ends those under way: their groups fail (Operation).
  void give_up() { pending_.clear(); }

 private:
  std::span<const BucketShards> buckets_;
  UnitMemory& memory_;
  Messenger& messenger_;
  std::vector<Pending> pending_;
  Status failure_;  // the first one; it stays
};

}  // namespace hdt::training
