// engine_limits.h: which plans a training engine runs. A search is limited to these, since a plan that nobody
// can start is no answer.
#pragma once

#include "base/status.h"
#include "training/plan/describe/plan.h"
#include "training/plan/describe/profile.h"

namespace hdt::plan {

// The engine that is to run a plan.
enum class Engine {
  // hdt-train: everything but tensor parallelism.
  kHdtTrain,
  // SynerFuse, the mixed-vendor fork of Megatron: what its own checks let through. One split and one degree
  // hold for all replicas. Either stages differ, or micro-batches do.
  kMegatron,
  // No limit: whatever the predictor can play.
  kAny,
};

// How the engine sums gradients, which a search plays and writes: hdt-train by libhdt, the others by rings of
// NCCL's kind.
ReductionKind reduction_of(Engine engine);

// The part of the profile that plans of the engine can use.
Profile profile_for(Engine engine, const Profile& profile);

// kConfig with the field and the rule if the engine refuses the plan. The plan has a replica, and each
// replica has a stage.
Status check_runs_on(Engine engine, const Plan& plan);

}  // namespace hdt::plan
