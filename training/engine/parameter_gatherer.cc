// parameter_gatherer.cc: starts the allgathers first unit first, and waits for them.
#include "training/engine/parameter_gatherer.h"

namespace hdt::training {

// Buckets are in the order of backward.
void ParameterGatherer::start() {
  for (size_t bucket = buckets_.size(); bucket > 0; --bucket) {
    const BucketShards& shards = buckets_[bucket - 1];
    if (shards.counts.empty() || shards.elements == 0 || !failure_.is_ok()) continue;
    Result<Pending> started = messenger_.all_gather_over_owners(
        shards.bucket.owner_set, memory_.parameters(shards.bucket.units), shards.counts);
    if (started.is_ok()) {
      under_way_.push_back({shards.bucket.units.first, started.take()});
    } else {
      failure_ = started.status();
    }
  }
}

// As in GradientReducer::finish(): after a failure the others are given up.
Status ParameterGatherer::finish(int unit) {
  while (failure_.is_ok() && !under_way_.empty() && under_way_.front().first_unit <= unit) {
    failure_ = under_way_.front().operation->wait();
    under_way_.pop_front();
  }
  if (!failure_.is_ok()) under_way_.clear();
  return failure_;
}

}  // namespace hdt::training
