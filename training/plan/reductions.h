// reductions.h: the gradient reductions of a plan: which ranges of units, by which workers, over which links.
#pragma once

#include <vector>

#include "training/engine/ownership.h"
#include "training/plan/network.h"
#include "training/plan/stage_cost.h"

namespace hdt::plan {

// One ring allreduce. With n owners every hop carries 2 (n - 1) / n of the bytes (Patarasuk and Yuan, "Bandwidth
// optimal all-reduce algorithms for clusters of workstations", 2009); all devices of a stage reduce their parts
// at the same time over the ports of their node.
struct Reduction {
  std::vector<int> workers;
  training::UnitRange units;
  double bytes = 0;       // of all devices of one owner
  std::vector<Hop> hops;  // in the order of workers, and back to the first

  double bytes_over_each_hop() const;
};

// Every range that several replicas own: an owner set each, or with overlap its buckets.
std::vector<Reduction> plan_reductions(const PredictionInputs& inputs, const Plan& plan,
                                       const training::Layout& layout);

}  // namespace hdt::plan
