// shards.cc: bounds from weights, and the shards of all buckets of a rank.
#include "training/engine/shards.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace hdt::training {

Status check_shard_options(const Layout& layout, const ShardOptions& options) {
  const std::vector<double>& weights = options.weights;
  if (weights.empty()) return Status::ok();
  if (!options.sharded) {
    return {Code::kInvalidArgument, "weights of shards: expected sharded optimizer states, found none"};
  }
  if (weights.size() != static_cast<size_t>(layout.world_size())) {
    return {Code::kInvalidArgument, fmt::format("{} weights of shards: expected one for each of the {} ranks",
                                                weights.size(), layout.world_size())};
  }
  for (size_t rank = 0; rank < weights.size(); ++rank) {
    if (!std::isfinite(weights[rank]) || weights[rank] < 0) {
      return {Code::kInvalidArgument,
              fmt::format("weight {} of the shard of rank {}: expected a finite number of at least 0",
                          weights[rank], rank)};
    }
  }
  for (const OwnerSet& set : owner_sets(layout)) {
    // The owners of the embedding have the tied unit, too.
    if (set.units.first == kTiedUnit) continue;
    if (std::ranges::all_of(set.ranks, [&](int rank) { return weights[rank] == 0; })) {
      return {
          Code::kInvalidArgument,
          fmt::format("weights of shards: 0 for all owners (ranks {}) of units {} to {}: nobody would keep "
                      "their optimizer states",
                      fmt::join(set.ranks, ", "), set.units.first, set.units.end - 1)};
    }
  }
  return Status::ok();
}

std::vector<size_t> shard_bounds(size_t elements, std::span<const double> weights) {
  // Relative to the largest one, so that no sum overflows.
  const double largest = std::ranges::max(weights);
  std::vector<double> sums = {0};
  for (const double weight : weights) sums.push_back(sums.back() + weight / largest);
  const double lines = static_cast<double>(elements) / kShardAlignment;
  std::vector<size_t> bounds;
  for (const double sum : sums) {
    const auto line = static_cast<size_t>(std::llround(lines * (sum / sums.back())));
    // From the last positive weight on the sum is exactly the last one. That shard ends with the elements.
    bounds.push_back(sum == sums.back() ? elements : std::min(line * kShardAlignment, elements));
  }
  return bounds;
}

std::vector<BucketShards> plan_shards(const std::vector<OwnerSet>& sets, const UnitMemory& memory, int rank,
                                      size_t bucket_elements, const ShardOptions& options) {
  std::vector<BucketShards> planned;
  for (const Bucket& bucket : plan_buckets(
           sets, memory.units(), [&memory](int unit) { return memory.size(unit); }, bucket_elements)) {
    BucketShards shards{bucket, memory.size(bucket.units), {}, 0, memory.size(bucket.units)};
    const std::vector<int>& owners = sets[bucket.owner_set].ranks;
    if (options.sharded && owners.size() > 1) {
      std::vector<double> weights;
      for (const int owner : owners) weights.push_back(options.weights.empty() ? 1 : options.weights[owner]);
      const std::vector<size_t> bounds = shard_bounds(shards.elements, weights);
      for (size_t i = 0; i < owners.size(); ++i) {
        shards.counts.push_back(bounds[i + 1] - bounds[i]);
        if (owners[i] != rank) continue;
        shards.first = bounds[i];
        shards.count = shards.counts.back();
      }
    }
    planned.push_back(std::move(shards));
  }
  return planned;
}

}  // namespace hdt::training
