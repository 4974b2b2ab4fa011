// reductions.h: the gradient reductions of a plan: which ranges of units, by which workers, over which links.
#pragma once

#include <optional>
#include <vector>

#include "training/engine/ownership.h"
#include "training/plan/predict/network.h"
#include "training/plan/predict/stage_cost.h"

namespace hdt::plan {

// One ring allreduce. With n owners every hop carries 2 (n - 1) / n of the bytes (Patarasuk and Yuan,
// "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009); all devices of a stage
// reduce their parts at the same time over the ports of their node.
struct Reduction {
  std::vector<int> workers;  // one of each class of equal ones (equal_replicas.h)
  training::UnitRange units;
  int owners = 0;         // all of them
  double bytes = 0;       // of all devices of one owner
  std::vector<Hop> hops;  // the ring's
  // With nothing else on the links, by the collectives' cost model; none: what the ring takes.
  std::optional<double> seconds_alone;

  double bytes_over_each_hop() const;
};

// A range of units with one set of owners.
struct OwnedRange {
  std::vector<int> workers;
  training::UnitRange units;
  int owners = 0;
  std::vector<Hop> hops;
  std::vector<int> nodes;  // each that has owners, once; of equal ones one stands for all
};

// A reduction for each range, or with overlap for each bucket of it. `plan` and `layout` have the ranges'
// workers.
std::vector<Reduction> plan_reductions(const PredictionInputs& inputs, const Plan& plan,
                                       const training::Layout& layout, const std::vector<OwnedRange>& ranges);

}  // namespace hdt::plan
