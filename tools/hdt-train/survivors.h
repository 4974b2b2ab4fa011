// survivors.h: what a run is for the ranks that are left after a loss: their speed, their memory, the layout,
// and the flags that go with it (--elastic).
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "hdt/hdt.hpp"
#include "tools/hdt-train/flags.h"
#include "tools/hdt-train/run_so_far.h"
#include "training/engine/elastic_layout.h"
#include "training/engine/layout.h"

namespace hdt::tools {

// The ranks of a world of `size` that are not lost, in their order, as hdtCommShrink numbers them.
std::vector<int> ranks_left(int size, const std::set<int>& lost);

// The speed of each rank that the run has begun with relative to the others, and where it is known from.
struct RankSpeeds {
  std::vector<double> speeds;  // by rank of the first layout, above 0
  std::string source;          // for the user
};

// By how much the ranks of the present layout, which is without those of `lost`, have computed, in parameters
// and samples, and how long; where no step was measured by `before`, the speeds of the layout before, or
// --slow-down. A rank of which nothing is known counts as the slowest other one. `flags`: of the first
// layout.
RankSpeeds speeds_of_run(const TrainFlags& flags, const training::Layout& present, const std::set<int>& lost,
                         const RunSoFar& so_far, const std::vector<double>& before);

// All ranks of `world`, those that are left, must call it, after they have freed what they had. `first`: the
// layout that the run has begun with. So the same is made of it by a rank that has gone on without some
// ranks already, and by one that has not come so far. `speeds`: of rank 0; other ranks get them. As
// elastic_layout() fails, on all ranks alike, or by the world.
Result<training::ElasticLayout> layout_of_survivors(const TrainFlags& flags, const training::Layout& first,
                                                    const std::set<int>& lost, std::vector<double>& speeds,
                                                    Communicator& world);

// The flags of the new layout: what they say rank by rank, and the plan. `flags` are those of the first one.
// Adds to made.notes what the user should know.
TrainFlags flags_of_survivors(const TrainFlags& flags, const training::Layout& first,
                              training::ElasticLayout& made);

// The values of a list that has one for each rank of the first layout, by new rank.
std::vector<double> of_survivors(const std::vector<double>& values, const std::vector<int>& new_ranks);

}  // namespace hdt::tools
