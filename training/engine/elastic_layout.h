// elastic_layout.h: the layout with which a run goes on after it has lost ranks (hdt-train --elastic).
//
// A replica that has lost some of its ranks keeps the others as its stages, in their order, and its layers
// are split anew. A replica that has lost all of its ranks goes. The global batch stays exactly as large.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "training/engine/layout.h"

namespace hdt::training {

// The layers that fit a rank of which nothing is known.
inline constexpr int kAnyNumberOfLayers = std::numeric_limits<int>::max();

// What is known of a rank of the old layout.
struct RankAbility {
  bool lost = false;
  double speed = 1;                      // relative to the other ranks, above 0
  int most_layers = kAnyNumberOfLayers;  // that its memory can hold
};

// The same on all ranks that have the same old layout and abilities.
struct ElasticLayout {
  Layout layout;
  // By rank of the old layout; -1 for a rank that is lost. Ranks that are left keep their order, as
  // hdtCommShrink numbers them.
  std::vector<int> new_ranks;
  // What is not as it was beside layers and counts: chunks that are given up, micro-batches of another size.
  // One sentence each, for the user.
  std::vector<std::string> notes;
};

// The layout of the ranks that are left.
// - Layers: in each replica the stage that would take longest takes as short as it can, within what the
//   memory holds. Only a first or a last stage may be without layers: one that was before, or where there are
//   more stages than layers.
// - Micro-batches: in the same way over the replicas. Their sizes stay, unless the batch cannot be made then.
// - Chunks of interleaved 1F1B stay as many where layers and micro-batches suffice.
// The replica of the lowest rank that is left becomes replica 0.
// kInvalidArgument: no rank is left, or `ranks` is not one for each rank with a speed above 0.
// kSystem: the memory of a replica's ranks cannot hold the model; the message names them, in the numbers of
// the old layout, and how many layers are missing.
Result<ElasticLayout> elastic_layout(const Layout& old, std::span<const RankAbility> ranks);

}  // namespace hdt::training
