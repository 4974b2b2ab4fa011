// ownership.h: which ranks must sum which gradients.
//
// A unit is owned by one rank of every replica. Where replicas are split differently, neighbouring units have
// different sets of owners. A set is a row of consecutive units, so its gradients can be reduced as one piece
// of memory. Ranks that hold several ranges of layers may share several such rows; each one is a set, and
// sets of the same ranks use one group (owner_groups()).
//
// A tied matrix is a set of its own, of all ranks that have it. Each of them has the gradient of its own
// uses, so the sum over the set is that of both uses, whichever ranks have one of them and which have both.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "training/engine/layout.h"

namespace hdt::training {

// Ranks that hold the same consecutive units.
struct OwnerSet {
  // One for each replica, in the order of replicas; of the tied unit one or two (Layout::owners_of()).
  std::vector<int> ranks;
  UnitRange units;  // as long as the owners do not change
};

// All owner sets, in the order of units, the tied unit first. Together they cover every unit once.
std::vector<OwnerSet> owner_sets(const Layout& layout);

// By set: the first set with the same ranks in the same order, whose group all of these sets use.
//
// The members of a group must start its operations in one order, and they do. Each member holds the units of
// all sets of the group, and all of its operations follow the order of its units, whatever set they are of:
// - A backward completes units in falling order on every rank (gradient_reducer.h), so the members reduce the
//   set of the last units first. The tied unit is the last one on every rank that has it.
// - Parameters (parameter_gatherer.h) are gathered in rising order, the tied unit first. An update lies
//   between the reductions and these on every rank.
// - The states of a checkpoint (Optimizer::state_to_write()) are gathered in the order of the buckets, which
//   is the falling one again.
std::vector<int> owner_groups(const std::vector<OwnerSet>& sets);

// Distributes the groups (owner_groups()) over rounds such that no rank is in two groups of a round, so the
// groups of a round can be made by one split of the world. Every rank computes the same rounds, and so makes
// the same splits in the same order. Each round lists indices into `sets`, of the first set of each group.
std::vector<std::vector<int>> disjoint_rounds(const std::vector<OwnerSet>& sets);

// Which of `owners` takes which of the items with these sizes, by index, such that all take about as much:
// the largest item goes first, each to the owner that has least. The same on every rank that has the same
// sizes.
std::vector<int> share_out(std::span<const size_t> sizes, int owners);

// Gradients that are reduced by one operation.
struct Bucket {
  int owner_set = 0;
  UnitRange units;
};

// The buckets of the rank that holds `units` (in rising order), in the order in which a backward pass
// completes them. A bucket takes units of one owner set, last first, until another one would bring it over
// `most_elements`. A unit that is larger than that is a bucket of its own. All members of a set get the same
// buckets for it, because they hold the same units of the set.
std::vector<Bucket> plan_buckets(const std::vector<OwnerSet>& sets, std::span<const int> units,
                                 const std::function<size_t(int unit)>& unit_elements, size_t most_elements);

}  // namespace hdt::training
