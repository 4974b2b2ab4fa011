// partition.h: how a collective call is cut into chunks (`Chunk`), and where the data of each chunk lies. All
// are pure functions of the call and the group's shape. Ranks and daemons compute them independently and
// must come to the same result; so a change here needs a new kSegmentVersion and a new kPeerVersion.
//
// The order of elements inside a slot is by *position*: ranks sorted by (node, local index). So the
// blocks of a node are contiguous, and schedules can move the blocks of whole nodes. Where the data is
// in a chunk:
//   allreduce, reduce, broadcast   `elements` elements, the same range of the call for every rank
//   reduce_scatter, allgather      for each position q: elements [q * elements, (q + 1) * elements) hold a
//                                  column range of the block of the rank at position q
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/schedule.h"
#include "ipc/segment.h"

namespace hdt::ipc {

// True for collectives whose chunks hold one block for each rank.
constexpr bool by_blocks(collectives::Collective what) {
  return what == collectives::Collective::kReduceScatter || what == collectives::Collective::kAllGather;
}

// True for collectives whose calls name a root.
bool is_rooted(const Call& call);

// A chunk: one range of the call's elements. For collectives by blocks, the same range of every block.
struct Chunk {
  // The first element of the range, within the call or within each block.
  uint64_t offset;
  // Elements of the range; 0 for barriers and empty calls.
  uint64_t elements;
};

// The partition of one call: all chunks have the same number of elements, except for a shorter last one.
// A value type; making it allocates nothing.
class Partition {
 public:
  // The count must be sound (is_sound()), so that no product below overflows.
  Partition(const Call& call, const Layout& layout);
  // The number of chunks, at least 1: a call of 0 elements still takes a place in the order.
  uint64_t chunks() const { return chunks_; }
  // Chunk `index` of the call, counted from 0. An index beyond the end gives an empty chunk.
  Chunk chunk(uint64_t index) const;

 private:
  // In elements: of the call (or of a block), and of each chunk but the last.
  uint64_t count_, step_, chunks_;
};

// The group's shape in the order of positions. Made once for each group, on both sides, from the nodes
// of its ranks.
struct Order {
  // `node_of_rank` has one entry below `nodes` for each rank; the caller has checked that.
  explicit Order(std::vector<uint32_t> node_of_rank, uint32_t nodes);
  std::vector<uint32_t> node_of_rank;
  // By position.
  std::vector<uint32_t> rank_at;
  // By rank.
  std::vector<uint32_t> position_of;
  // By node; it has nodes + 1 entries, so that first_position[n + 1] is the end of node n.
  std::vector<uint64_t> first_position;
};

// Bytes of a rank's sendbuf that a call reads. For a broadcast, those of the root's.
uint64_t contribution_bytes(const Call& call, uint32_t ranks);
// Bytes of a rank's recvbuf that a call writes. For a reduce, those of the root's.
uint64_t result_bytes(const Call& call, uint32_t ranks);

// The place of element `index` of a chunk's area in the user's buffer for which the area stands, in
// elements.
uint64_t user_index(const Call& call, const Chunk& chunk, const Order& order, uint64_t index);

// The work that the daemon of node `me` has to do between the nodes for one chunk: the collective, the
// root's node, and where the block of each node begins. `weights`: how much of the chunk each node owns, for
// collectives whose blocks are not those of ranks (collectives/owner_weights.h); empty: all the same.
collectives::Problem problem_of(const Call& call, const Chunk& chunk, const Order& order, uint32_t me,
                                std::span<const uint32_t> weights = {});

// Whether the call can be a call of any group: its collective, type and reduction are known, and its
// root and count are within what some group allows. To be asked before type_size() or a Partition is used on
// foreign bytes.
bool is_sound(const Call& call);
// "" if the call is valid in a group of `ranks`; otherwise a text that says what is wrong with it.
std::string validate(const Call& call, uint32_t ranks);
// A text for messages: "allreduce of 1024 float32, sum". The call may consist of any bytes: an unknown
// value is named by its number ("type 255").
std::string describe(const Call& call);

}  // namespace hdt::ipc
