// partition.cc: the arithmetic of chunks and positions. Every function is used by ranks and by daemons on the
// same values, and the two never exchange the result. So nothing here may depend on the machine, the
// configuration or the time.
#include "ipc/partition.h"

#include <algorithm>

#include "collectives/owner_weights.h"

namespace hdt::ipc {

using collectives::Collective;

namespace {

// A call is cut into kStages chunks, so that the stages of several chunks overlap: while one is between
// the nodes, ranks copy and reduce others. A chunk of less than kSmallestChunk bytes is not worth a
// wake-up of the engine.
constexpr uint64_t kSmallestChunk = uint64_t{64} << 10;
constexpr uint64_t kStages = 4;
// If each node has one rank, rank and engine take turns for each chunk, and there is no other rank whose
// work could fill the gaps. So a call is cut in two there, and into more chunks only if each of them has
// at least this many bytes.
constexpr uint64_t kSmallestOfMany = uint64_t{256} << 10;

// The maximum of elements of all ranks together. The bytes of so many elements of the widest type (8
// bytes) still fit into 64 bits: 2^56 * 8 = 2^59.
constexpr uint64_t kMostElements = uint64_t{1} << 56;

// "float32"; "type 255" where there is no such type.
template <typename Enum>
std::string name_or_number(const char* kind, Enum value) {
  if (collectives::is_known(value)) return collectives::name_of(value);
  return std::string(kind) + " " + std::to_string(static_cast<unsigned>(value));
}

// Only broadcasts and reduces are parts, and parts are counted from 1.
bool may_be_part(const Call& call) {
  return call.part == 0 || (is_rooted(call) && part_number(call.part) != 0);
}

}  // namespace

// The chunk size in elements: a quarter of the call, or what the rule for single ranks wants, but never
// below the floor and never beyond what an area of a slot can hold.
Partition::Partition(const Call& call, const Layout& layout) : count_(call.count) {
  // A chunk of a collective by blocks holds its column range once for each rank.
  const uint64_t width = collectives::type_size(call.type) * (by_blocks(call.what) ? layout.ranks : 1);
  const uint64_t capacity = std::max<uint64_t>(1, layout.chunk_bytes / width);
  const uint64_t floor = std::clamp<uint64_t>(kSmallestChunk / width, 1, capacity);
  uint64_t wanted = (count_ + kStages - 1) / kStages;
  if (layout.nodes == layout.ranks) {
    wanted = std::max(wanted, std::min((count_ + 1) / 2, kSmallestOfMany / width));
  }
  // The parts of a call by counts follow one another as chunks do, so they are cut no further than they must
  // be.
  if (call.part != 0) wanted = capacity;
  step_ = std::clamp(wanted, floor, capacity);
  // Ranges begin at multiples of 64 elements if possible, so that vector loads of the user's buffers
  // stay aligned.
  if (step_ > 64) step_ = std::min(capacity, (step_ + 63) / 64 * 64);
  chunks_ = call.what == Collective::kBarrier ? 1 : std::max<uint64_t>(1, (count_ + step_ - 1) / step_);
}

// `min` keeps the last chunk, and chunks of barriers and empty calls, within the call.
Chunk Partition::chunk(uint64_t index) const {
  const uint64_t offset = std::min(count_, index * step_);
  return {offset, std::min(step_, count_ - offset)};
}

// A counting sort by node: count the ranks of each node, sum the counts up to the first positions, then
// place the ranks. Ranks come in ascending order, so the ranks of a node keep their order, which is that
// of the local indices.
Order::Order(std::vector<uint32_t> node_of, uint32_t nodes)
    : node_of_rank(std::move(node_of)), position_of(node_of_rank.size()), first_position(nodes + 1, 0) {
  for (uint32_t node : node_of_rank) ++first_position[node + 1];
  for (uint32_t node = 0; node < nodes; ++node) first_position[node + 1] += first_position[node];
  rank_at.resize(node_of_rank.size());
  std::vector<uint64_t> next(first_position.begin(), first_position.end() - 1);
  for (uint32_t rank = 0; rank < node_of_rank.size(); ++rank) {
    const auto position = static_cast<uint32_t>(next[node_of_rank[rank]]++);
    position_of[rank] = position;
    rank_at[position] = rank;
  }
}

uint64_t contribution_bytes(const Call& call, uint32_t ranks) {
  const uint64_t bytes = call.count * collectives::type_size(call.type);
  return call.what == Collective::kReduceScatter ? bytes * ranks : bytes;
}

uint64_t result_bytes(const Call& call, uint32_t ranks) {
  const uint64_t bytes = call.count * collectives::type_size(call.type);
  return call.what == Collective::kAllGather ? bytes * ranks : bytes;
}

// The inverse of the order by position: element i of the area belongs to the rank at position i /
// elements, and is element i % elements of that rank's column range.
uint64_t user_index(const Call& call, const Chunk& chunk, const Order& order, uint64_t index) {
  if (!by_blocks(call.what)) return chunk.offset + index;
  const uint64_t position = index / chunk.elements;
  return order.rank_at[position] * call.count + chunk.offset + index % chunk.elements;
}

collectives::Problem problem_of(const Call& call, const Chunk& chunk, const Order& order, uint32_t me,
                                std::span<const uint32_t> weights) {
  collectives::Problem problem;
  problem.what = call.what;
  problem.nodes = static_cast<int>(order.first_position.size() - 1);
  problem.me = static_cast<int>(me);
  // The root of a call without one is ignored, so that equal schedules come out of equal work.
  problem.root = is_rooted(call) ? static_cast<int>(order.node_of_rank[static_cast<size_t>(call.root)]) : 0;
  const auto nodes = static_cast<uint64_t>(problem.nodes);
  const uint64_t elements = call.what == Collective::kBarrier ? 0 : chunk.elements;
  // Where the nodes' blocks begin, nodes + 1 values. For collectives by blocks, a node's block is that
  // of its ranks. For the others the range is divided by the weights, or evenly among the nodes, whatever the
  // number of their ranks, since each node sends and receives as much as any other.
  if (!by_blocks(call.what) && !weights.empty()) {
    problem.block_offsets = collectives::weighted_offsets(weights, elements);
    return problem;
  }
  for (uint64_t node = 0; node <= nodes; ++node) {
    problem.block_offsets.push_back(by_blocks(call.what) ? order.first_position[node] * elements
                                                         : elements * node / nodes);
  }
  return problem;
}

bool is_rooted(const Call& call) {
  return call.what == Collective::kReduce || call.what == Collective::kBroadcast;
}

bool is_sound(const Call& call) {
  return is_known(call.what) && is_known(call.type) && is_known(call.op) && can_reduce(call.type, call.op) &&
         may_be_part(call) && call.root >= 0 && static_cast<uint32_t>(call.root) < kMaxRanks &&
         call.count <= kMostElements;
}

// validate() depends on the group, is_sound() does not. The count is compared by a division, so that it
// cannot overflow.
std::string validate(const Call& call, uint32_t ranks) {
  if (!is_known(call.what)) return "unknown " + name_or_number("collective", call.what);
  if (!is_known(call.type)) return "unknown " + name_or_number("type", call.type);
  if (!is_known(call.op)) return "unknown " + name_or_number("reduction", call.op);
  if (!can_reduce(call.type, call.op)) {
    return std::string("no reduction ") + name_of(call.op) + " of " + name_of(call.type);
  }
  if (!may_be_part(call)) return "no call of this kind is part " + std::to_string(call.part) + " of another";
  if (call.root < 0 || static_cast<uint32_t>(call.root) >= ranks) return "root out of range";
  if (call.count > kMostElements / ranks) return "count too large";
  return {};
}

std::string describe(const Call& call) {
  std::string text = name_or_number("collective", call.what);
  if (call.what == Collective::kBarrier) return text;
  text += " of " + std::to_string(call.count) + " " + name_or_number("type", call.type);
  if (collectives::reduces(call.what)) text += ", " + name_or_number("reduction", call.op);
  if (is_rooted(call)) text += ", root " + std::to_string(call.root);
  if (call.part != 0) {
    text += ", part " + std::to_string(part_number(call.part)) + " of that root's" +
            (call.part & kLastPart ? " and last" : "") + " in a call by counts";
  }
  return text;
}

}  // namespace hdt::ipc
