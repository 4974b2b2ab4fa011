#include "libclient/common/copy_bytes.h"

#include "base/topology.h"
#include "ipc/partition.h"

namespace hdt::client {

using collectives::Stores;

namespace {

// The largest last cache that stores_for() assumes. A larger one is shared by many cores and other programs,
// and most of it is far from a core. On a processor with 260 MiB, two ranks took twice as long for an
// allreduce of 32 and 64 MiB when they wrote through the cache.
constexpr uint64_t kMostCacheBytes = uint64_t{32} << 20;
// The smallest last cache that stores_for() assumes, so that calls of fewer bytes need not read the topology.
// Reading it takes some milliseconds, more under a sanitizer, and holds locks of the C library. A child that
// is forked meanwhile would wait for them at its exit.
constexpr uint64_t kLeastCacheBytes = uint64_t{8} << 20;

}  // namespace

void copy_bytes(void* to, const void* from, size_t bytes, Stores stores) {
  if (stores == Stores::kCached || to == from) return copy_bytes(to, from, bytes);
  const void* const sources[] = {from};
  void* const destinations[] = {to};
  // A single source is copied, whatever the reduction.
  collectives::reduce(collectives::DataType::kUint8, collectives::ReduceOp::kSum, sources, destinations,
                      bytes, stores);
}

Stores stores_for(const ipc::Call& call, uint32_t ranks, uint32_t local_ranks) {
  const uint64_t moved =
      local_ranks * (ipc::contribution_bytes(call, ranks) + ipc::result_bytes(call, ranks));
  if (moved <= kLeastCacheBytes) return Stores::kCached;
  if (moved > kMostCacheBytes) return Stores::kStreaming;
  return moved > cache_bytes() ? Stores::kStreaming : Stores::kCached;
}

}  // namespace hdt::client
