// gradient_reducer.h: adds up gradients over the owners of each unit while backward is still running.
#pragma once

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "training/engine/messenger.h"
#include "training/engine/ownership.h"
#include "training/engine/unit_memory.h"

namespace hdt::training {

// A bucket is started when the gradients of its last missing unit are complete. Members of an owner set hold
// the same units of it and complete them in the same order (last first), so their operations match;
// operations of different sets are independent of each other.
class GradientReducer {
 public:
  GradientReducer(const std::vector<OwnerSet>& sets, UnitMemory& memory, Messenger& messenger,
                  size_t bucket_elements);

  // The gradients of `unit` are complete on this rank. Units come last first.
  void unit_done(int unit);
  // Waits for everything that was started; all units must be done. Then gradients are summed over their
  // owners.
  Status finish();

  int buckets() const { return static_cast<int>(buckets_.size()); }

 private:
  const std::vector<OwnerSet>& sets_;
  UnitMemory& memory_;
  Messenger& messenger_;
  std::vector<Bucket> buckets_;
  size_t next_ = 0;  // bucket
  std::vector<Pending> pending_;
  Status failure_;  // the first, reported by finish()
};

}  // namespace hdt::training
