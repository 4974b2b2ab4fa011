// node_stages.cc: copy in, reduce and copy out for each collective. Where the bytes of a chunk are, by
// collective:
//   allreduce, reduce   copy-in area of each rank: its contribution, without its own share; output: the sum
//   reduce_scatter      copy-in area of each rank: a column range for each rank's block; the result goes
//                       straight to the recvbuf
//   allgather           output: a column range for each rank's block
//   broadcast           output: the root's range
// An average is divided when it leaves the slot: the output holds sums.
#include "libclient/intranode/node_stages.h"

#include <vector>

#include "collectives/kernels.h"
#include "libclient/common/copy_bytes.h"
#include "libclient/common/share.h"

namespace hdt::client::one_node {

using collectives::Collective;
using collectives::ReduceOp;
using collectives::type_size;

namespace {

// A chunk in bytes, and who this rank is in it. In a group of one node, rank, local index and position
// are the same number. A short-lived object: it refers to what it was made from.
class View {
 public:
  View(const NodeAccess& access, const SlotChunk& chunk)
      : access_(access), chunk_(chunk), width_(type_size(chunk.call.type)) {}

  uint32_t me() const { return access_.local; }
  uint32_t ranks() const { return access_.layout().local_ranks; }
  bool is_root() const { return static_cast<uint32_t>(chunk_.call.root) == me(); }
  size_t width() const { return width_; }
  uint64_t elements() const { return chunk_.part.elements; }
  // Bytes of the range, or of one block's column range.
  size_t bytes() const { return elements() * width_; }
  // The copy-in area of a rank in the chunk's slot.
  std::byte* staging(uint32_t rank) const {
    return access_.data(access_.layout().staging(chunk_.number, rank));
  }
  std::byte* output() const { return access_.data(access_.layout().output(chunk_.number)); }
  // Where the chunk begins in the user's buffers, in the block of rank `block`. Collectives that are not
  // by blocks have block 0 only.
  const std::byte* send(uint32_t block = 0) const { return chunk_.send + at(block); }
  std::byte* recv(uint32_t block = 0) const { return chunk_.recv + at(block); }
  // How results are written to the recvbuf.
  collectives::Stores stores() const { return stores_for(chunk_.call, ranks(), ranks()); }
  // This rank's share of the range.
  Share share() const { return share_of(elements(), ranks(), me()); }

 private:
  // Bytes from the beginning of the buffer.
  uint64_t at(uint32_t block) const { return (block * chunk_.call.count + chunk_.part.offset) * width_; }

  const NodeAccess& access_;
  const SlotChunk& chunk_;
  size_t width_;
};

// Calls `body` with all of the chunk but this rank's share: at most two ranges, in bytes from its
// beginning.
template <typename Body>
void for_others(const View& view, Body body) {
  const Share own = view.share();
  if (own.first != 0) body(size_t{0}, own.first * view.width());
  const uint64_t end = own.first + own.count;
  if (end != view.elements()) body(end * view.width(), (view.elements() - end) * view.width());
}

// Combines `count` elements of every rank: of the others from `at` bytes into their copy-in areas, of
// this rank from `own`. The order of the sources is the order of ranks, so the result does not depend on
// who combines.
void reduce(const View& view, const ipc::Call& call, const std::byte* own, size_t at, size_t count,
            std::span<void* const> destinations, collectives::Stores stores = collectives::Stores::kCached) {
  if (count == 0) return;
  std::vector<const void*> sources;
  for (uint32_t i = 0; i < view.ranks(); ++i) sources.push_back(i == view.me() ? own : view.staging(i) + at);
  collectives::reduce(call.type, call.op, sources, destinations, count, stores);
}

// Writes `count` elements of `from`, divided by the number of ranks, to `to`, which may be the same
// place.
void divide(const View& view, const ipc::Call& call, const void* from, void* to, size_t count) {
  collectives::copy_divided(call.type, from, to, count, static_cast<int>(view.ranks()));
}

}  // namespace

void copy_in(const NodeAccess& access, const SlotChunk& chunk) {
  const View view(access, chunk);
  switch (chunk.call.what) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      // Each of the other ranks combines its share of these bytes.
      for_others(view, [&](size_t at, size_t bytes) {
        copy_bytes(view.staging(view.me()) + at, view.send() + at, bytes);
      });
      break;
    case Collective::kReduceScatter:
      // The block of each other rank, which that rank combines.
      for (uint32_t block = 0; block < view.ranks(); ++block) {
        if (block != view.me()) {
          copy_bytes(view.staging(view.me()) + block * view.bytes(), view.send(block), view.bytes());
        }
      }
      break;
    case Collective::kAllGather:
      // Nothing is combined, so the contribution goes straight to the output.
      copy_bytes(view.output() + view.me() * view.bytes(), view.send(), view.bytes());
      break;
    case Collective::kBroadcast:
      if (view.is_root()) copy_bytes(view.output(), view.send(), view.bytes());
      break;
    case Collective::kBarrier:
      break;
  }
}

// A result goes to the recvbuf of this rank, to the output for the other ranks, or to both at once:
// reading the sources is the larger part of the work.
void reduce(const NodeAccess& access, const SlotChunk& chunk) {
  const View view(access, chunk);
  const ipc::Call& call = chunk.call;
  // The share of a reduce-scatter is this rank's own block, and nobody else needs it.
  if (call.what == Collective::kReduceScatter) {
    void* const results[] = {view.recv()};
    reduce(view, call, view.send(view.me()), view.me() * view.bytes(), view.elements(), results,
           call.op == ReduceOp::kAvg ? collectives::Stores::kCached : view.stores());
    if (call.op == ReduceOp::kAvg) divide(view, call, view.recv(), view.recv(), view.elements());
    return;
  }
  if (call.what != Collective::kAllReduce && call.what != Collective::kReduce) return;
  const Share own = view.share();
  const size_t at = own.first * view.width();
  // Whether this rank needs its share of the result, and whether any other rank does.
  const bool mine = call.what == Collective::kAllReduce || view.is_root();
  const bool others = call.what == Collective::kAllReduce ? view.ranks() > 1 : !view.is_root();
  std::vector<void*> results;
  if (others) results.push_back(view.output() + at);
  if (mine) results.push_back(view.recv() + at);
  reduce(view, call, view.send() + at, at, own.count, results);
  // The recvbuf holds the final result; the output keeps the sum for the others' copy out.
  if (mine && call.op == ReduceOp::kAvg) divide(view, call, view.recv() + at, view.recv() + at, own.count);
}

void copy_out(const NodeAccess& access, const SlotChunk& chunk) {
  const View view(access, chunk);
  const ipc::Call& call = chunk.call;
  switch (call.what) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      // Only the root has a recvbuf.
      if (call.what == Collective::kReduce && !view.is_root()) break;
      for_others(view, [&](size_t at, size_t bytes) {
        if (call.op == ReduceOp::kAvg) {
          divide(view, call, view.output() + at, view.recv() + at, bytes / view.width());
        } else {
          copy_bytes(view.recv() + at, view.output() + at, bytes, view.stores());
        }
      });
      break;
    case Collective::kAllGather:
      for (uint32_t block = 0; block < view.ranks(); ++block) {
        // The own block comes from the sendbuf, which is nearer; in place there is nothing to copy.
        const std::byte* from = block == view.me() ? view.send() : view.output() + block * view.bytes();
        copy_bytes(view.recv(block), from, view.bytes(), view.stores());
      }
      break;
    case Collective::kBroadcast:
      copy_bytes(view.recv(), view.is_root() ? view.send() : view.output(), view.bytes(), view.stores());
      break;
    case Collective::kReduceScatter:
    case Collective::kBarrier:
      break;
  }
}

}  // namespace hdt::client::one_node
