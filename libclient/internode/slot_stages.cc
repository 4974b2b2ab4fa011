// slot_stages.cc: copy in, reduce and copy out for each collective between nodes. Where the bytes of a
// chunk are:
//   collectives that reduce   copy-in area of each local rank: its contribution; input: the node's sum, from
//                             which the schedule starts; output: the result of all nodes
//   allgather, broadcast      output: the contributions at once, as nothing is combined
// In reduce-scatter and allgather an area holds a column range for each rank of the group, in the order
// of positions, so that the blocks of a node adjoin (ipc/partition.h). An average is divided when it is
// copied out.
#include "libclient/internode/slot_stages.h"

#include <vector>

#include "collectives/kernels.h"
#include "libclient/common/copy_bytes.h"
#include "libclient/common/share.h"

namespace hdt::client {

using collectives::Collective;
using collectives::reduces;
using collectives::type_size;

namespace {

// The place of this rank's contribution. One that is combined goes to the rank's copy-in area, or, if
// the rank is alone on its node, straight to where the node's sum would be.
std::byte* contribution(const NodeAccess& access, const SlotChunk& chunk) {
  const ipc::Layout& layout = access.layout();
  if (!reduces(chunk.call.what)) return access.data(layout.output(chunk.number));
  if (layout.local_ranks > 1) return access.data(layout.staging(chunk.number, access.local));
  return access.data(layout.input(chunk.number));
}

}  // namespace

// Copy in. `bytes` is the size of the range, of one block for collectives by blocks.
void copy_in(const NodeAccess& access, const SlotChunk& chunk) {
  const ipc::Call& call = chunk.call;
  const size_t width = type_size(call.type);
  const size_t bytes = chunk.part.elements * width;
  std::byte* to = contribution(access, chunk);
  switch (call.what) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kBroadcast:
      copy_bytes(to, chunk.send + chunk.part.offset * width, bytes);
      break;
    case Collective::kReduceScatter:
      // The user's blocks are in the order of ranks, those of the area in the order of positions.
      for (uint64_t position = 0; position < access.order.rank_at.size(); ++position) {
        const uint64_t block = access.order.rank_at[position] * call.count + chunk.part.offset;
        copy_bytes(to + position * bytes, chunk.send + block * width, bytes);
      }
      break;
    case Collective::kAllGather:
      copy_bytes(to + access.order.position_of[access.rank] * bytes, chunk.send + chunk.part.offset * width,
                 bytes);
      break;
    case Collective::kBarrier:
      break;
  }
}

// Reduce. The input is written here and read by the engine once all local ranks have counted `reduced`
// up.
void reduce(const NodeAccess& access, const SlotChunk& chunk) {
  const ipc::Call& call = chunk.call;
  const ipc::Layout& layout = access.layout();
  if (!reduces(call.what) || layout.local_ranks == 1) return;
  // All elements of the area are shared out among the local ranks, across the borders of blocks.
  const uint64_t total = chunk.part.elements * (ipc::by_blocks(call.what) ? layout.ranks : 1);
  const auto [first, count] = share_of(total, layout.local_ranks, access.local);
  if (count == 0) return;
  const size_t width = type_size(call.type);
  // The order of the sources is that of local ranks, whichever rank combines: the same bits on every
  // run.
  std::vector<const void*> sources;
  for (uint32_t i = 0; i < layout.local_ranks; ++i) {
    sources.push_back(access.data(layout.staging(chunk.number, i)) + first * width);
  }
  void* const results[] = {access.data(layout.input(chunk.number)) + first * width};
  collectives::reduce(call.type, call.op, sources, results, count);
}

// Copy out. The output was written by the engine before it counted `exchanged` up.
void copy_out(const NodeAccess& access, const SlotChunk& chunk) {
  const ipc::Call& call = chunk.call;
  const size_t width = type_size(call.type);
  const size_t bytes = chunk.part.elements * width;
  const std::byte* from = access.data(access.layout().output(chunk.number));
  std::byte* to = chunk.recv + chunk.part.offset * width;
  const collectives::Stores stores = stores_for(call, access.layout().ranks, access.layout().local_ranks);
  // Copies one range of the result out, divided if it is an average: the output holds sums.
  const auto deliver = [&](const std::byte* result) {
    if (call.op == collectives::ReduceOp::kAvg) {
      if (bytes == 0) return;
      collectives::copy_divided(call.type, result, to, chunk.part.elements,
                                static_cast<int>(access.layout().ranks));
    } else {
      copy_bytes(to, result, bytes, stores);
    }
  };
  switch (call.what) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      deliver(from);
      break;
    case Collective::kReduceScatter:
      // Only this rank's own column range.
      deliver(from + access.order.position_of[access.rank] * bytes);
      break;
    case Collective::kAllGather:
      for (uint64_t position = 0; position < access.order.rank_at.size(); ++position) {
        const uint64_t block = access.order.rank_at[position] * call.count + chunk.part.offset;
        copy_bytes(chunk.recv + block * width, from + position * bytes, bytes, stores);
      }
      break;
    case Collective::kBroadcast:
      copy_bytes(to, from, bytes, stores);
      break;
    case Collective::kBarrier:
      break;
  }
}

}  // namespace hdt::client
