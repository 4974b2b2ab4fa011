// plan.h: how a collective call is cut into pieces, and where each piece lies. Pure functions of the call and
// the group's shape: ranks and daemons compute them independently and must agree. Who changes them changes
// kSegmentVersion and kPeerVersion.
//
// Element order inside a slot is by *position*: ranks sorted by (node, local index), so that the blocks of a
// node are contiguous and nodes are what schedules move. Where a rank's data is in a piece:
//   allreduce, reduce, broadcast   `elements` elements, the same range of the call for everyone
//   reduce_scatter, allgather      for each position q: block [q * elements, (q + 1) * elements), a column
//                                  range of the block of the rank at position q
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/schedule.h"
#include "ipc/segment.h"

namespace hdt::session {

// True for collectives whose pieces hold one block per rank.
constexpr bool by_blocks(collectives::Collective what) {
  return what == collectives::Collective::kReduceScatter || what == collectives::Collective::kAllGather;
}

struct Piece {
  uint64_t offset;    // first element of the range (within the call, or within each block)
  uint64_t elements;  // of the range; 0 for barriers and empty calls
};

class Plan {
 public:
  Plan(const Call& call, const Layout& layout);
  // At least 1: a call of 0 elements still takes a place in the order.
  uint64_t pieces() const { return pieces_; }
  Piece piece(uint64_t index) const;

 private:
  uint64_t count_, step_, pieces_;
};

// The group's shape in position order.
struct Order {
  explicit Order(std::vector<uint32_t> node_of_rank, uint32_t nodes);
  std::vector<uint32_t> node_of_rank;
  std::vector<uint32_t> rank_at;         // by position
  std::vector<uint32_t> position_of;     // by rank
  std::vector<uint64_t> first_position;  // by node, nodes + 1 values
};

// Bytes that one rank's sendbuf contributes to a call (the root's, where only the root contributes).
uint64_t contribution_bytes(const Call& call, uint32_t ranks);
// Bytes of a rank's recvbuf (the root's, where only the root receives).
uint64_t result_bytes(const Call& call, uint32_t ranks);

// Whether buffers of the call may be used in place between nodes: nodes then tell each other where their
// output is. The same on all nodes.
bool may_be_direct(const Call& call, const Layout& layout);
// Whether that holds of its result, too. Not of a reduce-scatter's between more than two nodes: steps then
// pass partial results of other blocks through the output.
bool result_may_be_direct(const Call& call, const Layout& layout);

// Where element `index` of a piece's area is in the user's buffer that the area stands for, in elements.
uint64_t user_index(const Call& call, const Piece& piece, const Order& order, uint64_t index);

// What the daemon of node `me` runs between nodes for one piece.
collectives::Problem problem_of(const Call& call, const Piece& piece, const Order& order, uint32_t me);

// The call is one at all: its kind, type and reduction are known, its root and count are those of some group.
bool is_sound(const Call& call);
// "" if a daemon may run the call in a group of `ranks`; else what is wrong with it.
std::string validate(const Call& call, uint32_t ranks);
// "allreduce of 1024 float32, sum". Of any bytes: what is unknown is named by its number ("type 255").
std::string describe(const Call& call);

}  // namespace hdt::session
