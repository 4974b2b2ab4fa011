// reductions.h: the gradient reductions of a plan: which range of units, between which workers, over
// which links.
#pragma once

#include <optional>
#include <vector>

#include "training/engine/ownership.h"
#include "training/plan/predict/network.h"
#include "training/plan/predict/stage_cost.h"

namespace hdt::plan {

// One reduction of gradients. As an allreduce by a ring with n owners, every hop carries 2 (n - 1) / n of the
// bytes (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009).
// All devices of a stage reduce their parts at the same time, over the ports of their node.
//
// With sharded optimizer states it is a reduce-scatter, and an allgather brings the parameters before the
// next step needs them. As a ring each is half of an allreduce, or somewhat more where shards are unequal:
// every hop carries all shards but one. The cost model plays one reduction, or one broadcast, of all bytes,
// which is longer than what libhdt takes by up to one shard (hdtReduceScatterV, hdtAllGatherV).
struct Reduction {
  // One owner of each class of equal replicas (equal_replicas.h).
  std::vector<int> workers;
  training::UnitRange units;
  // The range that it is a part of. Operations of one range go one after the other, as they have one group.
  int range = 0;
  // Whether each owner gets its own shard only, and the parameters are gathered.
  bool sharded = false;
  // The number of all owners, the equal ones included.
  int owners = 0;
  // The bytes of all devices of one owner together: of gradients, and of the parameters that are gathered.
  double bytes = 0;
  double gather_bytes = 0;
  // The hops of the ring, each kind once.
  std::vector<Hop> hops;
  // The bytes that each hop carries, of the reduction and of the allgather.
  double bytes_over_each_hop = 0;
  double gather_bytes_over_each_hop = 0;
  // The time with nothing else on the links, by the collectives' cost model: of the reduction, and of the
  // allgather. No value: the time follows from the ring's bytes and rates.
  std::optional<double> seconds_alone;
  std::optional<double> gather_seconds_alone;
};

// A range of units with one set of owners, from which reductions are made. `workers`, `owners`
// and `hops` are as in Reduction.
struct OwnedRange {
  std::vector<int> workers;
  training::UnitRange units;
  int owners = 0;
  std::vector<Hop> hops;
  // Each node with owners once. A node may be named by the one that stands for its class.
  std::vector<int> nodes;
  // The smallest part of the optimizer's states that an owner keeps; 1: states are whole.
  double least_share = 1;
};

// One reduction for each range or, if gradients overlap with the backward, for each bucket of it. The
// ranges' workers are numbered by `plan` and `layout`. Empty if there are no ranges.
std::vector<Reduction> plan_reductions(const PredictionInputs& inputs, const Plan& plan,
                                       const training::Layout& layout, const std::vector<OwnedRange>& ranges);

}  // namespace hdt::plan
