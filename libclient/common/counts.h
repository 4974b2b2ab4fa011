// counts.h: calls by counts (hdtAllGatherV, hdtReduceScatterV) where the counts of the ranks differ: which
// counts are the fastest, and in which calls such a call is made. All functions are pure, and all ranks of a
// group come to the same result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ipc/partition.h"

namespace hdt::client {

// The counts by rank that make the two calls fastest, of `count` elements of `width` bytes in all
// (hdtSuggestCounts). `rates`: by node, as of Segment::node_rates(). Equal ones, as far as the count can be
// divided, if a rate is not known, or if others would gain less than a tenth. A node's elements are divided
// equally among its ranks; blocks begin at multiples of 64 bytes then, but for a rest that the largest has.
std::vector<size_t> suggested_counts(const ipc::Order& order, std::span<const uint64_t> rates, uint64_t count,
                                     size_t width);

// One broadcast or reduce of a call by counts.
struct CountPart {
  // The rank to whose block it belongs.
  uint32_t root;
  // Where it begins in the block, and how long it is, in elements.
  size_t first, count;
  // As of ipc::Call::part.
  uint8_t part;
};
// The parts of a call, in the order in which all ranks make them. Blocks are cut so that the parts of all
// roots take turns, each root's as often as its block is long: one root alone would use the links of some
// nodes in one direction only. If `whole`, and for a call of few bytes, it is one broadcast or reduce for
// each rank, also for those of no elements, and its `part` is 0.
std::vector<CountPart> parts_of(std::span<const size_t> counts, size_t width, bool whole);

}  // namespace hdt::client
