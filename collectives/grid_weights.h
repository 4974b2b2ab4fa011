// grid_weights.h: the places and the blocks of nodes with unequal links or memory, in the direct exchange in
// two levels (two_level.cc).
//
// In a grid of R rows and C columns the column's stripe is the fraction s of the D bytes, and the block of a
// node the fraction w, so that the fractions of a column add up to s. The node sends to its row D (1 - s) of
// contributions and D s (C - 1) of results, and to its column D (s - w) and D w (R - 1). So it carries
// D (1 + w (R - 2) + s (C - 1)) each way. It combines D s with the C - 1 other contributions of its row, and
// D w with the R - 1 of its column. The operation takes
//
//     T = max over the nodes of D (1 + w (R - 2) + s (C - 1)) / b, D (w (R - 1) + s (C - 1)) / r, and D / l
//
// with the rates of owner_weights.h: b of the nodes' links, r of their engines, and l of their ranks' work. A
// stripe is no longer than the slowest node of its column allows. So nodes that get on alike share a column.
// With C columns, one node whose links have half the rate costs most of the work of its column: T is below
// D (2 + 1 / (C - 1)) / b, where equal links would take 2 D / b, and a ring takes 4 D / b. With equal blocks,
// carrying and combining take as long as with pairwise.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/owner_weights.h"

namespace hdt::collectives {

// The shape of a grid of rows * columns nodes.
struct Grid {
  int rows = 1;
  int columns = 1;
};
// The shape for so many nodes: no fewer columns than rows, and as few as possible. 1 row: there is none, as
// the number is a prime or so small that all can talk to all.
Grid grid_of(int nodes);

struct GridWeights {
  // By place, column by column: the node.
  std::vector<int> places;
  // By place: the node's block, in units of kWeightUnits (owner_weights.h), which they add up to.
  std::vector<uint32_t> weights;
};
// The ones that take the least time for nodes at these places, within one part in 65536. `rates`: of as many
// nodes as there is a grid for. Integer arithmetic only, so every node computes the same. Pure.
GridWeights grid_weights(std::span<const OwnerRates> rates);

// The time T in seconds for each byte of D. Without `weights` the blocks are equal, and the nodes stand in
// their order.
double grid_seconds_of_a_byte(const GridWeights& weights, std::span<const OwnerRates> rates);

}  // namespace hdt::collectives
