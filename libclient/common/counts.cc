#include "libclient/common/counts.h"

#include <algorithm>
#include <numeric>

#include "collectives/holder_weights.h"

namespace hdt::client {

namespace {

// Bytes at whose multiples suggested blocks begin: a cache line.
constexpr uint64_t kLineBytes = 64;

// A call of fewer bytes a rank in the mean is not cut: it takes as long as its messages take to go round.
constexpr uint64_t kSmallestCut = uint64_t{64} << 10;
// The bytes of a part: one chunk (ipc/segment.cc), so that as many parts as there are slots are in flight, of
// several roots. With more nodes it must be longer to be used in place (ipc/buffer_use.cc).
constexpr uint64_t kPartBytes = uint64_t{512} << 10;
constexpr size_t kMostRanksOfShortParts = 8;
// The most parts of a block: longer blocks have longer parts.
constexpr uint64_t kMostParts = 4096;

// `whole` in `parts` parts that differ by 1 at most, the longer ones first.
uint64_t part_of(uint64_t whole, uint64_t parts, uint64_t index) {
  return whole / parts + (index < whole % parts ? 1 : 0);
}

}  // namespace

std::vector<size_t> suggested_counts(const ipc::Order& order, std::span<const uint64_t> rates, uint64_t count,
                                     size_t width) {
  const size_t ranks = order.node_of_rank.size();
  std::vector<size_t> counts(ranks);
  const auto equal = [&] {
    for (size_t rank = 0; rank < ranks; ++rank) counts[rank] = part_of(count, ranks, rank);
    return counts;
  };
  if (rates.size() < 2 || rates.size() > collectives::kMostWeightedNodes) return equal();
  // The memory of the group is not this process's alone.
  std::vector<uint64_t> bounded;
  for (const uint64_t rate : rates) bounded.push_back(std::min(rate, collectives::kHighestWeightedRate));
  if (std::ranges::find(bounded, uint64_t{0}) != bounded.end()) return equal();
  const std::vector<uint32_t> weights = collectives::holder_weights(bounded);
  std::vector<uint32_t> ranks_of_nodes(rates.size());
  for (const uint32_t node : order.node_of_rank) ++ranks_of_nodes[node];
  if (!collectives::holders_gain(weights, ranks_of_nodes, bounded)) return equal();
  // Whole lines first, by node and then by rank.
  const uint64_t line = std::max<uint64_t>(kLineBytes / width, 1);
  const auto offsets = collectives::weighted_offsets(weights, count / line);
  for (size_t rank = 0; rank < ranks; ++rank) {
    const uint32_t node = order.node_of_rank[rank];
    const uint64_t index = order.position_of[rank] - order.first_position[node];
    counts[rank] = part_of(offsets[node + 1] - offsets[node], ranks_of_nodes[node], index) * line;
  }
  *std::ranges::max_element(counts) += count % line;
  return counts;
}

std::vector<CountPart> parts_of(std::span<const size_t> counts, size_t width, bool whole) {
  std::vector<CountPart> parts;
  const uint64_t bytes = std::accumulate(counts.begin(), counts.end(), uint64_t{0}) * width;
  if (whole || bytes < kSmallestCut * counts.size()) {
    for (uint32_t root = 0; root < counts.size(); ++root) parts.push_back({root, 0, counts[root], 0});
    return parts;
  }
  const uint64_t longest = counts.size() > kMostRanksOfShortParts ? 2 * kPartBytes : kPartBytes;
  for (uint32_t root = 0; root < counts.size(); ++root) {
    const size_t count = counts[root];
    const uint64_t wanted = std::clamp<uint64_t>((count * width + longest - 1) / longest, 1, kMostParts);
    // A multiple of 64 elements keeps the user's buffers aligned, as for chunks.
    const size_t length = ((count + wanted - 1) / wanted + 63) / 64 * 64;
    for (size_t first = 0, number = 0; first < count; first += length, ++number) {
      const size_t part = std::min(length, count - first);
      parts.push_back({root, first, part, static_cast<uint8_t>(1 + number % ipc::kPartNumbers)});
    }
  }
  // In the order of the places that the parts' middles have in their blocks.
  const auto middle = [&](const CountPart& part) {
    return (static_cast<double>(part.first) + static_cast<double>(part.count) / 2) /
           static_cast<double>(counts[part.root]);
  };
  std::ranges::stable_sort(parts, {}, middle);
  parts.back().part |= ipc::kLastPart;
  return parts;
}

}  // namespace hdt::client
