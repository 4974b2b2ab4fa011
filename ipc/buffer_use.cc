// buffer_use.cc: see buffer_use.h. Like the rest of the cutting of calls (partition.cc), nothing here may
// depend on the machine, the configuration or the time.
#include "ipc/buffer_use.h"

#include "collectives/types.h"
#include "ipc/partition.h"

namespace hdt::ipc {

using collectives::Collective;

namespace {

bool is_root(const Call& call, uint32_t rank) { return static_cast<uint32_t>(call.root) == rank; }

// A reduce-scatter's recvbuf cannot be used between more than two nodes: the steps of its schedules pass
// partial results of other blocks through the output, which is larger than a recvbuf.
bool result_may_be_direct(const Call& call, const Layout& layout) {
  return call.what != Collective::kReduceScatter || layout.nodes == 2;
}

}  // namespace

bool reads_sendbuf(const Call& call, uint32_t rank) {
  if (call.what == Collective::kBarrier) return false;
  return call.what != Collective::kBroadcast || is_root(call, rank);
}

bool writes_recvbuf(const Call& call, uint32_t rank) {
  if (call.what == Collective::kBarrier) return false;
  return call.what != Collective::kReduce || is_root(call, rank);
}

BufferSizes buffer_sizes(const Call& call, uint32_t ranks, uint32_t rank) {
  return {.send = reads_sendbuf(call, rank) ? contribution_bytes(call, ranks) : 0,
          .recv = writes_recvbuf(call, rank) ? result_bytes(call, ranks) : 0};
}

bool may_be_direct(const Call& call, const Layout& layout) {
  const uint32_t nodes = layout.nodes;
  // Below these sizes a copy through the slot costs less than the additional message. Among several
  // nodes the message goes from each node to each other one, so the bound grows with the nodes.
  constexpr uint64_t kSmallestBetweenTwo = uint64_t{256} << 10;
  constexpr uint64_t kSmallestOfANode = uint64_t{64} << 10;
  // Every node sends the message to every other one.
  constexpr uint32_t kMostNodes = 16;
  const uint64_t smallest = nodes == 2 ? kSmallestBetweenTwo : kSmallestOfANode * nodes;
  // With several ranks on a node, the node's block consists of several ranks' column ranges. These do
  // not adjoin in a chunk of a user's buffer, and a schedule's step needs a contiguous range.
  if (by_blocks(call.what) && layout.ranks != nodes) return false;
  return call.what != Collective::kBarrier && nodes <= kMostNodes &&
         call.count * collectives::type_size(call.type) >= smallest;
}

// A node with several ranks always goes through the slots, where contributions are combined. The same call
// may be in place on one node and not on another; the nodes tell each other
// (daemon/group/chunk_runner.h).
CallBuffers buffer_use(const Call& call, const Layout& layout, uint32_t rank, const BufferFacts& facts) {
  const bool reads = reads_sendbuf(call, rank);
  const bool writes = writes_recvbuf(call, rank);
  const bool direct = layout.local_ranks == 1 && may_be_direct(call, layout);
  CallBuffers use;
  // 1. All buffers that the call touches go through the slots, unless one of the next steps says otherwise.
  if (reads) use.send = BufferUse::kStaged;
  if (writes) use.recv = BufferUse::kCopiedOut;
  // 2. A broadcast's root. Its sendbuf is the output of the daemon's schedule, which nothing is received
  //    into: what stands in its recvbuf afterwards is the rank's own copy. That copy comes out of the slots
  //    if the data is there anyway.
  if (call.what == Collective::kBroadcast && reads) {
    if (facts.at_its_place) use.recv = BufferUse::kUnused;
    if (!direct || !facts.send_shared) return use;
    use.send = BufferUse::kInPlace;
    if (!facts.at_its_place) use.recv = BufferUse::kOwnCopy;
    return use;
  }
  if (!direct) return use;
  // 3. The result.
  if (writes && facts.recv_shared && result_may_be_direct(call, layout)) use.recv = BufferUse::kInPlace;
  // 4. The contribution. An allgather's is sent from its place in the recvbuf, so the sendbuf is never in
  //    place, whatever memory it is in.
  if (call.what == Collective::kAllGather) {
    if (use.recv == BufferUse::kInPlace)
      use.send = facts.at_its_place ? BufferUse::kUnused : BufferUse::kOwnCopy;
  } else if (reads && facts.send_shared) {
    use.send = BufferUse::kInPlace;
  }
  return use;
}

}  // namespace hdt::ipc
