// reductions.h: the gradient reductions of a plan: which range of units, between which workers, over
// which links.
#pragma once

#include <optional>
#include <vector>

#include "training/engine/ownership.h"
#include "training/plan/predict/network.h"
#include "training/plan/predict/stage_cost.h"

namespace hdt::plan {

// One allreduce of gradients. As a ring with n owners, every hop carries 2 (n - 1) / n of the bytes
// (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009).
// All devices of a stage reduce their parts at the same time, over the ports of their node.
struct Reduction {
  // One owner of each class of equal replicas (equal_replicas.h).
  std::vector<int> workers;
  training::UnitRange units;
  // The number of all owners, the equal ones included.
  int owners = 0;
  // The bytes of all devices of one owner together.
  double bytes = 0;
  // The hops of the ring, each kind once.
  std::vector<Hop> hops;
  // The time with nothing else on the links, by the collectives' cost model. No value: the time follows
  // from the ring's bytes and rates.
  std::optional<double> seconds_alone;

  // 2 (n - 1) / n of the bytes, for n owners.
  double bytes_over_each_hop() const;
};

// A range of units with one set of owners, from which reductions are made. `workers`, `owners` and
// `hops` are as in Reduction.
struct OwnedRange {
  std::vector<int> workers;
  training::UnitRange units;
  int owners = 0;
  std::vector<Hop> hops;
  // Each node with owners once. A node may be named by the one that stands for its class.
  std::vector<int> nodes;
};

// One reduction for each range or, if gradients overlap with the backward, for each bucket of it. The
// ranges' workers are numbered by `plan` and `layout`. Empty if there are no ranges.
std::vector<Reduction> plan_reductions(const PredictionInputs& inputs, const Plan& plan,
                                       const training::Layout& layout, const std::vector<OwnedRange>& ranges);

}  // namespace hdt::plan
