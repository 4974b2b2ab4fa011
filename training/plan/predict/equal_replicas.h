// equal_replicas.h: a plan with one replica of each class of equal ones, so that a step of thousands of
// workers is played as fast as one of a few.
//
// Replicas are equal if nothing that happens in a step tells them apart: they have the same split and
// counts, on nodes that are equal. Nodes are equal if they have the same device kind, hold equally many
// stages of each class, and if equally many hops of each reduction's ring leave, enter and stay in them.
// These classes are found by refining a first division until nothing changes (colour refinement, by
// Hopcroft and by Weisfeiler and Leman). Whatever is shared is shared equally (network.h), so all
// members of a class do the same at the same time. Therefore the step of the whole plan is found, to the
// last bit, by playing one replica of each class while the ports count all users.
#pragma once

#include <vector>

#include "training/plan/describe/plan.h"
#include "training/plan/predict/network.h"
#include "training/plan/predict/prediction.h"
#include "training/plan/predict/reductions.h"
#include "training/plan/predict/stage_cost.h"
#include "training/plan/predict/state_shares.h"

namespace hdt::plan {

// The smaller plan, and what it needs to be played for the whole one.
struct EqualReplicas {
  Plan plan;                  // the first replica of each class
  std::vector<int> class_of;  // by replica of the whole plan
  // By class and stage: the hop of an activation to the next stage. The last stage has one, to the first,
  // where stages have several chunks.
  std::vector<std::vector<Hop>> activations;
  // By class and stage: the hop of the sums over the devices of a stage, whose ring is inside its node.
  std::vector<std::vector<Hop>> tensor_sums;
  // All reductions of the whole plan. Their workers are numbered as in `plan`.
  std::vector<Reduction> reductions;
  StateShares shares;  // of the whole plan

  // Seconds of the sum over all workers before the update. 0 if the plan's runtime has none.
  double norm_seconds = 0;

  // The same hop in the opposite direction: the way of the gradient.
  static Hop back(const Hop& hop);
  // Copies the times, memory and spans of `plan`'s workers to all workers of the whole plan.
  Prediction of_all(const Prediction& prediction) const;
};

// The plan must have passed check_plan(). With `apart` each replica is a class of its own: the step is
// the same, but is played in full. Tests compare the two.
EqualReplicas find_equal_replicas(const PredictionInputs& inputs, const Plan& plan, bool apart = false);

}  // namespace hdt::plan
