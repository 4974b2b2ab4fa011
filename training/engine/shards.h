// shards.h: which owner updates which part of the parameters of an owner set, and so keeps the optimizer's
// state of it: all owners update everything, or each one its own shard (ZeRO-1; Rajbhandari et al. 2020:
// "ZeRO: memory optimizations toward training trillion parameter models").
//
// Every bucket is cut into shards of its own, in proportion to the weights of the owners. So the sum of a
// bucket goes to all owners as soon as it is complete, and a rank's shards together have its fraction of all
// parameters. The shards are ranges of the flat memory; where a tensor begins or ends does not matter to
// them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "training/engine/layout.h"
#include "training/engine/ownership.h"
#include "training/engine/unit_memory.h"

namespace hdt::training {

// Shards begin on a cache line of their fp32 states, in elements.
inline constexpr size_t kShardAlignment = 64 / sizeof(float);

// The same on all ranks.
struct ShardOptions {
  // Whether each owner keeps a shard only (--use-distributed-optimizer).
  bool sharded = false;
  // By rank: how much of the state it keeps, in proportion to the other owners of its units. Empty: all
  // alike.
  std::vector<double> weights;
};

// kInvalidArgument: not one weight for each rank, a weight that is negative or not finite, or owners of a
// unit that all have weight 0. Weights without `sharded` are refused, too.
Status check_shard_options(const Layout& layout, const ShardOptions& options);

// Cuts `elements` into one shard for each weight, in their order: shard i is bounds[i] .. bounds[i + 1] - 1
// of the bounds.size() == weights.size() + 1 bounds. Shards begin at multiples of kShardAlignment and cover
// everything once; each is within one alignment of its proportion. Weight 0 has no elements; another weight
// may have none either, where there are few. The weights are finite and not negative, and one is positive.
// The same on every machine: no sum is rounded in another order.
std::vector<size_t> shard_bounds(size_t elements, std::span<const double> weights);

// A bucket and the part of it that this rank updates.
struct BucketShards {
  Bucket bucket;
  size_t elements = 0;  // of the bucket, with the padding between units
  // The elements of each owner's shard, in the order of the set's ranks. Empty: the bucket is not cut, and
  // every owner updates all of it.
  std::vector<size_t> counts;
  // This rank's shard: so many elements, from this one of the bucket on.
  size_t first = 0;
  size_t count = 0;
};

// All buckets of `rank`, in the order in which backward completes them (plan_buckets()). A set with one owner
// is not cut. The options must be checked.
std::vector<BucketShards> plan_shards(const std::vector<OwnerSet>& sets, const UnitMemory& memory, int rank,
                                      size_t bucket_elements, const ShardOptions& options);

}  // namespace hdt::training
