// gradient_reducer.cc: starts buckets when they are complete, waits for them at the end.
#include "training/engine/gradient_reducer.h"

namespace hdt::training {

GradientReducer::GradientReducer(const std::vector<OwnerSet>& sets, UnitMemory& memory, Messenger& messenger,
                                 size_t bucket_elements)
    : sets_(sets),
      memory_(memory),
      messenger_(messenger),
      buckets_(plan_buckets(
          sets, memory.units(), [&memory](int unit) { return memory.size(unit); }, bucket_elements)) {}

// Buckets hold consecutive units, last first, so a bucket is complete with its first unit. A set with
// one rank has nothing to sum.
void GradientReducer::unit_done(int unit) {
  if (!failure_.is_ok() || next_ == buckets_.size() || unit != buckets_[next_].units.first) return;
  const Bucket& bucket = buckets_[next_++];
  if (sets_[bucket.owner_set].ranks.size() == 1) return;
  Result<Pending> started = messenger_.sum_over_owners(bucket.owner_set, memory_.gradients(bucket.units));
  if (started.is_ok()) {
    pending_.push_back(started.take());
  } else {
    failure_ = started.status();
  }
}

Status GradientReducer::finish() {
  if (failure_.is_ok() && next_ != buckets_.size()) {
    failure_ = Status(Code::kInternal, "backward has left out a unit");
  }
  // After a failure the others are given up: destroying an Operation without wait() aborts its group, so
  // no rank waits for this one.
  for (Pending& operation : pending_) {
    if (failure_.is_ok()) failure_ = operation->wait();
  }
  pending_.clear();
  next_ = 0;
  return failure_;
}

}  // namespace hdt::training
