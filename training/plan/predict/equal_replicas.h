// equal_replicas.h: a plan with one replica of each class of equal ones, so that a step of thousands of
// workers is as quick to play as one of a few.
//
// Replicas are equal when nothing that happens in a step tells them apart: the same split and counts, on
// nodes that are equal; nodes are equal when they have the same device kind, hold equally many stages of each
// class, and equally many hops of each reduction's ring leave, enter and stay in them. Such classes are found
// by refining a first division until nothing changes (Hopcroft's and Weisfeiler and Leman's colour
// refinement). All of a class then do the same at the same time, because what is shared is shared equally
// (network.h): playing one of them, with the ports counting all users, is the step of the whole plan to the
// last bit.
#pragma once

#include <vector>

#include "training/plan/describe/plan.h"
#include "training/plan/predict/network.h"
#include "training/plan/predict/prediction.h"
#include "training/plan/predict/reductions.h"
#include "training/plan/predict/stage_cost.h"

namespace hdt::plan {

struct EqualReplicas {
  Plan plan;                                  // the first replica of each class
  std::vector<int> class_of;                  // by replica of the whole plan
  std::vector<std::vector<Hop>> activations;  // by class and stage but the last: to the next stage
  std::vector<Reduction> reductions;          // of the whole plan; workers are those of `plan`

  double norm_seconds = 0;  // of the sum over all workers before the update

  // The same hop the other way.
  static Hop back(const Hop& hop);
  // Times of the workers of the whole plan from those of `plan`; spans likewise.
  Prediction of_all(const Prediction& prediction) const;
};

// The plan must have passed check_plan. With `apart` each replica is a class of its own: the same step,
// played in full.
EqualReplicas find_equal_replicas(const PredictionInputs& inputs, const Plan& plan, bool apart = false);

}  // namespace hdt::plan
