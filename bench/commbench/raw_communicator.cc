// raw_communicator.cc: the bound between nodes and inside one.
#include "bench/commbench/raw_communicator.h"

#include <algorithm>
#include <cstring>

#include "bench/commbench/plan.h"
#include "bench/commbench/raw_ring.h"

namespace hdt::bench {
namespace {

// Nodes are numbered from 0 without gaps.
int nodes_of(const Communicator& group) {
  int nodes = 0;
  for (int rank = 0; rank < group.ranks(); ++rank) nodes = std::max(nodes, group.node_of(rank) + 1);
  return nodes;
}

// Moves bytes from the send buffer into the receive buffer, round and round if more must be moved than
// they hold.
class RawCommunicator : public PeerCommunicator {
 public:
  // `ring` is null if all ranks are on one node.
  RawCommunicator(Communicator& group, std::unique_ptr<RawRing> ring)
      : PeerCommunicator(group), nodes_(nodes_of(group)), ring_(std::move(ring)) {}

  std::string lacks(const Call& call) const override {
    if (call.what == Collective::kBarrier) return "no barrier";
    // Asked for any size: whether there is a bound depends on the collective alone.
    if (ring_ && raw_wire_bytes(call.what, size_t{1} << 20, nodes_, ranks()) == 0) {
      return std::string("no bound for ") + name_of(call.what) + " between nodes";
    }
    return "";
  }
  bool makes_results() const override { return false; }
  Status barrier() override { return group_.barrier(); }

  Status run(const Call& call) override {
    const size_t element = element_bytes(call.type);
    const size_t part = call.count * element;
    const size_t whole = part * static_cast<size_t>(ranks());
    // The two regions are what the collective would read and write.
    Region from{static_cast<std::byte*>(const_cast<void*>(call.send)), part};
    Region into{static_cast<std::byte*>(call.recv), part};
    size_t full = part;
    using enum Collective;
    if (call.what == kReduceScatter || call.what == kScatter || call.what == kAllToAll)
      full = from.bytes = whole;
    if (call.what == kAllGather || call.what == kGather || call.what == kAllToAll) full = into.bytes = whole;
    if (full == 0) return Status::ok();
    if (in_place(call)) {
      // Bytes must go to another place than they come from, as they do in a collective.
      if (other_.size() < full) other_.resize(full);
      into = {other_.data(), full};
    }
    if (ring_) return ring_->exchange(from, into, raw_wire_bytes(call.what, full, nodes_, ranks()));
    copy(from, into, raw_copy_bytes(call.what, full, ranks()));
    return Status::ok();
  }

 private:
  // Copies `bytes` bytes in pieces that end where one of the regions ends.
  static void copy(Region from, Region into, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
      const size_t source = done % from.bytes;
      const size_t target = done % into.bytes;
      const size_t piece = std::min({bytes - done, from.bytes - source, into.bytes - target});
      std::memcpy(into.data + target, from.data + source, piece);
      done += piece;
    }
  }

  int nodes_;
  std::unique_ptr<RawRing> ring_;
  std::vector<std::byte> other_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> make_raw_communicator(Communicator& group, int64_t timeout_s) {
  std::unique_ptr<RawRing> ring;
  if (!on_one_node(group)) {
    Result<std::unique_ptr<RawRing>> connected = RawRing::connect(group, timeout_s);
    if (!connected.is_ok()) return connected.status();
    ring = connected.take();
  }
  return std::unique_ptr<Communicator>(new RawCommunicator(group, std::move(ring)));
}

std::string raw_version(const Communicator& group) {
  return on_one_node(group) ? "memcpy by every rank at once" : "plain TCP sockets, both ways at once";
}

}  // namespace hdt::bench
