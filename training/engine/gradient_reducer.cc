// gradient_reducer.cc: starts buckets when they are complete, waits for them at the end.
#include "training/engine/gradient_reducer.h"

namespace hdt::training {

// Buckets hold consecutive units, last first, so a bucket is complete with its first unit. The tied unit,
// whose uses may be the first and the last unit of the rank, is complete with all others.
void GradientReducer::unit_done(int unit) {
  if (!failure_.is_ok() || next_ == buckets_.size() || unit != buckets_[next_].bucket.units.first) return;
  start(buckets_[next_++]);
  if (next_ < buckets_.size() && buckets_[next_].bucket.units.first == kTiedUnit) start(buckets_[next_++]);
}

// A set with one rank has nothing to sum, and neither has a bucket of units without parameters.
void GradientReducer::start(const BucketShards& shards) {
  const int set = shards.bucket.owner_set;
  if (!failure_.is_ok() || sets_[set].ranks.size() == 1 || shards.elements == 0) return;
  const TypedSpan gradients = memory_.gradients(shards.bucket.units);
  Result<Pending> started = shards.counts.empty()
                                ? messenger_.sum_over_owners(set, gradients)
                                : messenger_.reduce_scatter_over_owners(set, gradients, shards.counts);
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
