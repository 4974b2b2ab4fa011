// parameter_gatherer.cc: starts the allgathers first unit first, and waits for them.
#include "training/engine/parameter_gatherer.h"

namespace hdt::training {

// Buckets are in the order of backward.
void ParameterGatherer::start() {
  for (size_t bucket = buckets_.size(); bucket > 0; --bucket) {
    const BucketShards& shards = buckets_[bucket - 1];
    if (shards.counts.empty() || !failure_.is_ok()) continue;
    Result<Pending> started = messenger_.all_gather_over_owners(
        shards.bucket.owner_set, memory_.parameters(shards.bucket.units), shards.counts);
    if (started.is_ok()) {
      pending_.push_back(started.take());
    } else {
      failure_ = started.status();
    }
  }
}

// As in GradientReducer::finish(): after a failure the others are given up.
Status ParameterGatherer::finish() {
  for (Pending& operation : pending_) {
    if (failure_.is_ok()) failure_ = operation->wait();
  }
  pending_.clear();
  return failure_;
}

}  // namespace hdt::training
