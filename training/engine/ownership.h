// ownership.h: which ranks must sum which gradients.
//
// A unit is owned by one rank of every replica. Where replicas are split differently, neighbouring units
// have different sets of owners. A set is a row of consecutive units, so its gradients can be reduced as one
// piece of memory. Ranks that hold several ranges of layers may share several such rows; each one is a set.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "training/engine/layout.h"

namespace hdt::training {

// Ranks that hold the same consecutive units.
struct OwnerSet {
  std::vector<int> ranks;  // one for each replica, in the order of replicas
  UnitRange units;         // as long as the owners do not change
};

// All owner sets, in the order of units. Together they cover every unit once.
std::vector<OwnerSet> owner_sets(const Layout& layout);

// Groups the sets into rounds such that no rank is in two sets of a round, so the groups of a round can
// be made by one split of the world. Every rank computes the same rounds, and so makes the same splits
// in the same order. Each round lists indices into `sets`.
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
