// owner_weights.h: how much of an allreduce each node combines, where nodes have unequal links or memory.
//
// In a direct exchange (pairwise.cc) the node that owns the fraction w of the D bytes sends D (1 - w) and
// receives D w (n - 1) while contributions go to their owners, and the other way round while results come
// back. Where successive chunks overlap, each direction of its links carries D (1 + w (n - 2)) in all. Its
// engine combines D w with n - 1 other contributions. Links and engine work at the same time, for different
// chunks, and so do the ranks of the node, which combine their own contributions before and take the results
// out afterwards: all of the D bytes, whatever the node owns. So the operation takes
//
//     T = max over the nodes of D (1 + w_i (n - 2)) / b_i, D w_i (n - 1) / r_i, and D / l_i
//
// where b_i are the rates of the nodes' links, in each direction, r_i those at which the engines combine, and
// l_i those of the ranks' work. Of the weights w_i that T allows a node, the links' and the engine's, the
// smaller one counts. T is the least for which these add up to 1; a node whose link is too slow for it owns
// nothing, and still needs D / b_i to send its contribution and to receive the result. If combining is no
// limit and no w_i is 0, that is T = 2 (n - 1) D / sum(b). If links are none, it is T = (n - 1) D / sum(r).
// A ring, and a direct exchange with equal blocks, take the longest of 2 (n - 1) D / (n min(b)),
// (n - 1) D / (n min(r)), and D / min(l).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hdt::collectives {

// Fractions are counted in so many units.
inline constexpr uint32_t kWeightUnits = 1 << 16;
// The most nodes, and the highest rate in bytes a second (a petabyte), for which the arithmetic is exact.
inline constexpr size_t kMostWeightedNodes = 1024;
inline constexpr uint64_t kHighestWeightedRate = uint64_t{1} << 50;

// The rates that limit a node in an allreduce, in bytes a second, each up to kHighestWeightedRate.
struct OwnerRates {
  // The rate of its links, in each direction; 0 counts as 1.
  uint64_t link = 0;
  // The rate at which its engine combines: bytes of the result, for each contribution but the first. 0: no
  // limit.
  uint64_t combine = 0;
  // The rate at which its ranks combine the operation's bytes among themselves and take out the result. 0: no
  // limit.
  uint64_t local = 0;
  bool operator==(const OwnerRates&) const = default;
};

// The weights of the nodes in units, which add up to kWeightUnits. `rates`: as many as nodes, within the
// limits above. Where several weights take the least time, the most even ones. Integer arithmetic only, so
// every node computes the same. Pure.
std::vector<uint32_t> owner_weights(std::span<const OwnerRates> rates);

// The time T in seconds for each byte of D; of equal blocks without `weights`.
double seconds_of_a_byte(std::span<const uint32_t> weights, std::span<const OwnerRates> rates);

// How much longer equal blocks take than these weights, at least 1: the ratio of the times T.
double gain_of(std::span<const uint32_t> weights, std::span<const OwnerRates> rates);

// How fast a node with an equal block gets on, apart from its ranks' work, as the rate of a link: such a
// block is carried twice where it is combined once. Below `rates.link`: its engine is slower than its links.
uint64_t pace_of(const OwnerRates& rates);

// Parts of `all` that are as even as can be, none larger than its entry in `most`; what is beyond the sum of
// these goes to the last of the largest.
std::vector<uint32_t> levelled(uint32_t all, std::span<const uint32_t> most);

// The first elements of the nodes' blocks, and behind them `elements`: nodes + 1 values.
std::vector<uint64_t> weighted_offsets(std::span<const uint32_t> weights, uint64_t elements);

}  // namespace hdt::collectives
