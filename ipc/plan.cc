#include "ipc/plan.h"

#include <algorithm>

namespace hdt::session {

using collectives::Collective;

namespace {

// A call is cut so that stages of several pieces overlap, but not finer than a piece that is worth a wake-up.
constexpr uint64_t kSmallestPiece = uint64_t{64} << 10;
constexpr uint64_t kStages = 4;
// Where each node has one rank, rank and engine take turns for each piece, and no other rank's work is in
// between: only two pieces as long as more would be smaller than this.
constexpr uint64_t kSmallestOfMany = uint64_t{256} << 10;

// Of all ranks together: the bytes of so many of the widest type can still be counted.
constexpr uint64_t kMostElements = uint64_t{1} << 56;

// "float32"; "type 255" where there is no such type.
template <typename Enum>
std::string name_or_number(const char* kind, Enum value) {
  if (collectives::is_known(value)) return collectives::name_of(value);
  return std::string(kind) + " " + std::to_string(static_cast<unsigned>(value));
}

}  // namespace

Plan::Plan(const Call& call, const Layout& layout) : count_(call.count) {
  const uint64_t width = collectives::type_size(call.type) * (by_blocks(call.what) ? layout.ranks : 1);
  const uint64_t capacity = std::max<uint64_t>(1, layout.piece_bytes / width);
  const uint64_t floor = std::clamp<uint64_t>(kSmallestPiece / width, 1, capacity);
  uint64_t wanted = (count_ + kStages - 1) / kStages;
  if (layout.nodes == layout.ranks) {
    wanted = std::max(wanted, std::min((count_ + 1) / 2, kSmallestOfMany / width));
  }
  step_ = std::clamp(wanted, floor, capacity);
  // Ranges start at multiples of 64 elements where they can, for aligned vector loads.
  if (step_ > 64) step_ = std::min(capacity, (step_ + 63) / 64 * 64);
  pieces_ = call.what == Collective::kBarrier ? 1 : std::max<uint64_t>(1, (count_ + step_ - 1) / step_);
}

Piece Plan::piece(uint64_t index) const {
  const uint64_t offset = std::min(count_, index * step_);
  return {offset, std::min(step_, count_ - offset)};
}

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

bool may_be_direct(const Call& call, const Layout& layout) {
  const uint32_t nodes = layout.nodes;
  // Below, a copy costs less than another note; and among several nodes, less than what the ring costs more.
  constexpr uint64_t kSmallestBetweenTwo = uint64_t{256} << 10;
  constexpr uint64_t kSmallestOfANode = uint64_t{64} << 10;
  constexpr uint32_t kMostNodes = 16;  // every node tells every other one
  const uint64_t smallest = nodes == 2 ? kSmallestBetweenTwo : kSmallestOfANode * nodes;
  // A node's block is that of several ranks otherwise, which do not adjoin in a piece of a user's buffer.
  if (by_blocks(call.what) && layout.ranks != nodes) return false;
  return call.what != Collective::kBarrier && nodes <= kMostNodes &&
         call.count * collectives::type_size(call.type) >= smallest;
}

bool result_may_be_direct(const Call& call, const Layout& layout) {
  return may_be_direct(call, layout) && (call.what != Collective::kReduceScatter || layout.nodes == 2);
}

uint64_t user_index(const Call& call, const Piece& piece, const Order& order, uint64_t index) {
  if (!by_blocks(call.what)) return piece.offset + index;
  const uint64_t position = index / piece.elements;
  return order.rank_at[position] * call.count + piece.offset + index % piece.elements;
}

collectives::Problem problem_of(const Call& call, const Piece& piece, const Order& order, uint32_t me) {
  collectives::Problem problem;
  problem.what = call.what;
  problem.nodes = static_cast<int>(order.first_position.size() - 1);
  problem.me = static_cast<int>(me);
  const bool rooted = call.what == Collective::kReduce || call.what == Collective::kBroadcast;
  problem.root = rooted ? static_cast<int>(order.node_of_rank[static_cast<size_t>(call.root)]) : 0;
  const auto nodes = static_cast<uint64_t>(problem.nodes);
  const uint64_t elements = call.what == Collective::kBarrier ? 0 : piece.elements;
  for (uint64_t node = 0; node <= nodes; ++node) {
    problem.block_offsets.push_back(by_blocks(call.what) ? order.first_position[node] * elements
                                                         : elements * node / nodes);
  }
  return problem;
}

bool is_sound(const Call& call) {
  return is_known(call.what) && is_known(call.type) && is_known(call.op) && call.root >= 0 &&
         static_cast<uint32_t>(call.root) < kMaxRanks && call.count <= kMostElements;
}

std::string validate(const Call& call, uint32_t ranks) {
  if (!is_known(call.what)) return "unknown " + name_or_number("collective", call.what);
  if (!is_known(call.type)) return "unknown " + name_or_number("type", call.type);
  if (!is_known(call.op)) return "unknown " + name_or_number("reduction", call.op);
  if (call.root < 0 || static_cast<uint32_t>(call.root) >= ranks) return "root out of range";
  if (call.count > kMostElements / ranks) return "count too large";
  return {};
}

std::string describe(const Call& call) {
  std::string text = name_or_number("collective", call.what);
  if (call.what == Collective::kBarrier) return text;
  text += " of " + std::to_string(call.count) + " " + name_or_number("type", call.type);
  if (collectives::reduces(call.what)) text += ", " + name_or_number("reduction", call.op);
  if (call.what == Collective::kReduce || call.what == Collective::kBroadcast) {
    text += ", root " + std::to_string(call.root);
  }
  return text;
}

}  // namespace hdt::session
