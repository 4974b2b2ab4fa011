// owner_weights.h: how much of an allreduce each node combines, where nodes have unequal links.
//
// In a direct exchange (pairwise.cc) the node that owns the fraction w of the D bytes sends D (1 - w) and
// receives D w (n - 1) while contributions go to their owners, and the other way round while results come
// back. Where successive chunks overlap, each direction of its links carries D (1 + w (n - 2)) in all. So the
// operation takes
//
//     T = max over the nodes of D (1 + w_i (n - 2)) / b_i
//
// where b_i are the rates of the nodes' links, in each direction. T is least where all nodes with w_i > 0
// need the same time. If no w_i is 0, that is T = 2 (n - 1) D / sum(b). A node whose link is too slow for
// that owns nothing, and still needs D / b_i to send its contribution and to receive the result. A ring, and
// a direct exchange with equal blocks, take 2 (n - 1) D / (n min(b)).
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

// The weights of the nodes in units, which add up to kWeightUnits. `rates`: of the nodes' links in bytes a
// second, as many as nodes, within the limits above; a rate of 0 counts as 1. Where several weights take the
// least time, the most even ones. Equal for fewer than three nodes: nothing can be gained there. Integer
// arithmetic only, so every node computes the same. Pure.
std::vector<uint32_t> owner_weights(std::span<const uint64_t> rates);

// The time T in seconds for each byte of D; of equal blocks without `weights`.
double seconds_of_a_byte(std::span<const uint32_t> weights, std::span<const uint64_t> rates);

// How much longer equal blocks take than these weights, at least 1: the ratio of the times T.
double gain_of(std::span<const uint32_t> weights, std::span<const uint64_t> rates);

// Parts of `all` that are as even as can be, none larger than its entry in `most`; what is beyond the sum of
// these goes to the last of the largest.
std::vector<uint32_t> levelled(uint32_t all, std::span<const uint32_t> most);

// The first elements of the nodes' blocks, and behind them `elements`: nodes + 1 values.
std::vector<uint64_t> weighted_offsets(std::span<const uint32_t> weights, uint64_t elements);

}  // namespace hdt::collectives
