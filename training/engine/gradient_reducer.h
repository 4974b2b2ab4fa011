// gradient_reducer.h: sums gradients over the owners of each unit while backward is still running.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "training/engine/messenger.h"
#include "training/engine/ownership.h"
#include "training/engine/shards.h"
#include "training/engine/unit_memory.h"

namespace hdt::training {

// One rank's reductions of a step. The trainer owns it and calls it on its own thread; the sums proceed
// in the background.
//
// A bucket is started when the gradients of its last missing unit are complete. Members of an owner set hold
// the same units of it and complete them in the same order (last first), so their operations match. That
// holds with several chunks, too: the last backward of a chunk comes before that of the chunk in front of it.
// Operations of different sets are independent of each other. A bucket that is cut into shards is reduced by
// a reduce-scatter, so this rank then has the sums of its own shard only.
class GradientReducer {
 public:
  // `buckets`: those of plan_shards(). They, sets, memory and messenger must outlive the reducer.
  GradientReducer(std::span<const BucketShards> buckets, const std::vector<OwnerSet>& sets,
                  UnitMemory& memory, Messenger& messenger)
      : buckets_(buckets), sets_(sets), memory_(memory), messenger_(messenger) {}

  // Reports that the gradients of `unit` are complete on this rank. Units must come last first. Starts
  // the bucket that the unit completes; a failure to do so is kept for finish().
  void unit_done(int unit);
  // Waits for everything that was started. If it succeeds, the gradients of this rank's shards are summed
  // over their owners, and the next step may begin. What other shards hold is not specified. kInternal: a
  // unit was not reported.
  Status finish();

  // Ends the sums under way: their groups fail (Operation).
  void give_up() { pending_.clear(); }
  int buckets() const { return static_cast<int>(buckets_.size()); }

 private:
  // Starts the sum of a bucket that is complete.
  void start(const BucketShards& shards);

  std::span<const BucketShards> buckets_;  // in the order of completion
  const std::vector<OwnerSet>& sets_;
  UnitMemory& memory_;
  Messenger& messenger_;
  // The bucket that is completed next; back to 0 with finish().
  size_t next_ = 0;
  std::vector<Pending> pending_;  // sums under way
  Status failure_;                // the first one; it stays, as a run that has failed has no further step
};

}  // namespace hdt::training
