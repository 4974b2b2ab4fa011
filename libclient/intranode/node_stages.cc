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

// A piece as bytes, and who this rank is in it. In a group of one node rank, local index and position are the
// same.
class View {
 public:
  View(const NodeAccess& access, const SlotPiece& piece)
      : access_(access), piece_(piece), width_(type_size(piece.call.type)) {}

  uint32_t me() const { return access_.local; }
  uint32_t ranks() const { return access_.layout().local_ranks; }
  bool is_root() const { return static_cast<uint32_t>(piece_.call.root) == me(); }
  size_t width() const { return width_; }
  uint64_t elements() const { return piece_.part.elements; }
  size_t bytes() const { return elements() * width_; }
  std::byte* staging(uint32_t rank) const {
    return access_.data(access_.layout().staging(piece_.number, rank));
  }
  std::byte* output() const { return access_.data(access_.layout().output(piece_.number)); }
  // Where the piece begins in the user's buffers, in the block of `block`.
  const std::byte* send(uint32_t block = 0) const { return piece_.send + at(block); }
  std::byte* recv(uint32_t block = 0) const { return piece_.recv + at(block); }
  Share share() const { return share_of(elements(), ranks(), me()); }

 private:
  uint64_t at(uint32_t block) const { return (block * piece_.call.count + piece_.part.offset) * width_; }

  const NodeAccess& access_;
  const SlotPiece& piece_;
  size_t width_;
};

// All of the piece but this rank's share, as bytes from its beginning.
template <typename Body>
void for_others(const View& view, Body body) {
  const Share own = view.share();
  if (own.first != 0) body(size_t{0}, own.first * view.width());
  const uint64_t end = own.first + own.count;
  if (end != view.elements()) body(end * view.width(), (view.elements() - end) * view.width());
}

// `count` elements of everyone, from `at` bytes into what they have staged, this rank's from `own`.
void reduce(const View& view, const session::Call& call, const std::byte* own, size_t at, size_t count,
            std::span<void* const> destinations) {
  if (count == 0) return;
  std::vector<const void*> sources;
  for (uint32_t i = 0; i < view.ranks(); ++i) sources.push_back(i == view.me() ? own : view.staging(i) + at);
  collectives::reduce(call.type, call.op, sources, destinations, count);
}

void divide(const View& view, const session::Call& call, const void* from, void* to, size_t count) {
  collectives::copy_divided(call.type, from, to, count, static_cast<int>(view.ranks()));
}

}  // namespace

void stage(const NodeAccess& access, const SlotPiece& piece) {
  const View view(access, piece);
  switch (piece.call.what) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      for_others(view, [&](size_t at, size_t bytes) {
        copy_bytes(view.staging(view.me()) + at, view.send() + at, bytes);
      });
      break;
    case Collective::kReduceScatter:
      for (uint32_t block = 0; block < view.ranks(); ++block) {
        if (block != view.me()) {
          copy_bytes(view.staging(view.me()) + block * view.bytes(), view.send(block), view.bytes());
        }
      }
      break;
    case Collective::kAllGather:
      copy_bytes(view.output() + view.me() * view.bytes(), view.send(), view.bytes());
      break;
    case Collective::kBroadcast:
      if (view.is_root()) copy_bytes(view.output(), view.send(), view.bytes());
      break;
    case Collective::kBarrier:
      break;
  }
}

void combine(const NodeAccess& access, const SlotPiece& piece) {
  const View view(access, piece);
  const session::Call& call = piece.call;
  if (call.what == Collective::kReduceScatter) {
    void* const results[] = {view.recv()};
    reduce(view, call, view.send(view.me()), view.me() * view.bytes(), view.elements(), results);
    if (call.op == ReduceOp::kAvg) divide(view, call, view.recv(), view.recv(), view.elements());
    return;
  }
  if (call.what != Collective::kAllReduce && call.what != Collective::kReduce) return;
  const Share own = view.share();
  const size_t at = own.first * view.width();
  const bool mine = call.what == Collective::kAllReduce || view.is_root();
  const bool others = call.what == Collective::kAllReduce ? view.ranks() > 1 : !view.is_root();
  std::vector<void*> results;
  if (others) results.push_back(view.output() + at);
  if (mine) results.push_back(view.recv() + at);
  reduce(view, call, view.send() + at, at, own.count, results);
  if (mine && call.op == ReduceOp::kAvg) divide(view, call, view.recv() + at, view.recv() + at, own.count);
}

void take(const NodeAccess& access, const SlotPiece& piece) {
  const View view(access, piece);
  const session::Call& call = piece.call;
  switch (call.what) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      if (call.what == Collective::kReduce && !view.is_root()) break;
      for_others(view, [&](size_t at, size_t bytes) {
        if (call.op == ReduceOp::kAvg) {
          divide(view, call, view.output() + at, view.recv() + at, bytes / view.width());
        } else {
          copy_bytes(view.recv() + at, view.output() + at, bytes);
        }
      });
      break;
    case Collective::kAllGather:
      for (uint32_t block = 0; block < view.ranks(); ++block) {
        const std::byte* from = block == view.me() ? view.send() : view.output() + block * view.bytes();
        copy_bytes(view.recv(block), from, view.bytes());
      }
      break;
    case Collective::kBroadcast:
      copy_bytes(view.recv(), view.is_root() ? view.send() : view.output(), view.bytes());
      break;
    case Collective::kReduceScatter:
    case Collective::kBarrier:
      break;
  }
}

}  // namespace hdt::client::one_node
