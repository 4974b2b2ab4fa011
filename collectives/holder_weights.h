// holder_weights.h: how much of the data each node holds, where nodes have unequal links or memory and the
// user may choose: the blocks of a reduce-scatter and of an allgather.
//
// In an allgather of D bytes the node that holds the fraction w of them receives D (1 - w) whatever the
// algorithm is, and sends D w at least. So with b_i for the rates of the nodes' links, in each direction, an
// allgather takes at least
//
//     T = D max over the nodes of max(w_i, 1 - w_i) / b_i
//
// A node with a slow link receives less the more it holds. With the k slowest of n nodes, sorted by their
// rates b_1 <= b_2 <= ..., the least T is
//
//     T = D max(1 / (2 b_1), max over k of (k - 1) / (b_1 + ... + b_k))
//
// Equal blocks take D (1 - 1 / n) / b_1. Chains reach the least T. Each block goes from its holder through
// all nodes, one after the other. A node sends everything once but what it is at the far end of, so it sends
// D (1 - w) if it is the far end for as much as it holds. far_end_of() chooses the far ends like that. In a
// reduce-scatter all messages go the other way: nodes send what they receive here, and receive what they send
// here. A node also combines what it receives, D (1 - w), at the rate r of its engine. So a reduce-scatter
// takes D (1 - w) / min(b, r), and a node that combines slowly should hold more. But an allgather, in which
// nothing is combined, may take longer for it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/owner_weights.h"

namespace hdt::collectives {

// The rates by which holder_weights() is best for a program that makes a reduce-scatter for each allgather:
// of the nodes' links, or of what is slower in each node, its link or its engine, if that makes the two
// together faster by a tenth. All nodes compute the same. Pure.
std::vector<uint64_t> holder_rates(std::span<const OwnerRates> rates);

// The weights of the nodes in units, which add up to kWeightUnits; none is above a half, unless there is one
// node. `rates`: of the nodes in bytes a second (holder_rates()), at least one, within the limits of
// owner_weights.h; a rate of 0 counts as 1. Where several weights take the least time, the most even ones.
// Integer arithmetic only, so every node and rank computes the same. Pure.
std::vector<uint32_t> holder_weights(std::span<const uint64_t> rates);

// Whether blocks by these weights are faster than blocks by `shares` by enough to be used: a tenth, so that
// links that are alike, but were not measured alike, are used alike. `shares`: how much each node would hold
// otherwise, in any unit; they add up to kWeightUnits at most, and to more than 0. Integer arithmetic, too.
// Pure.
bool holders_gain(std::span<const uint32_t> weights, std::span<const uint32_t> shares,
                  std::span<const uint64_t> rates);

// The far end of the chain (Problem::far_end) for the part of node `root`'s block at `place`, in units of
// kWeightUnits of the block. Over all blocks a node is the far end for as much as it holds. `weights`: as of
// holder_weights(). -1: any will do. Pure.
int far_end_of(std::span<const uint32_t> weights, int root, uint32_t place);

}  // namespace hdt::collectives
