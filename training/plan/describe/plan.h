// plan.h: who computes what: replicas, their stages, where each stage runs, and how the framework runs them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "training/engine/layout.h"
#include "training/plan/describe/cluster.h"
#include "training/plan/describe/model.h"
#include "training/plan/describe/profile.h"

namespace hdt::plan {

// A tensor-parallel group on one node that holds consecutive units.
struct Stage {
  int layers = 1;  // transformer layers; the first stage has the embedding too, the last the head
  std::string node;
  int tensor_parallel = 1;  // devices
  // Of the layers the first ones: their activations are not kept but computed again (recomputation.h).
  int recomputed_layers = 0;
  bool operator==(const Stage&) const = default;
};

struct Replica {
  int micro_batch_size = 1;
  int micro_batches = 1;
  std::vector<Stage> stages;
  bool operator==(const Replica&) const = default;
};

// kOneForwardOneBackward: the engine's. kLockstep: that of DeepSpeed (lockstep_schedule.h).
// kZeroBubble: ZB-H1 (training/engine/pipeline_schedule.h).
enum class ScheduleKind { kOneForwardOneBackward, kLockstep, kZeroBubble };

inline constexpr ScheduleKind kScheduleKinds[] = {ScheduleKind::kOneForwardOneBackward,
                                                  ScheduleKind::kLockstep, ScheduleKind::kZeroBubble};

const char* schedule_name(ScheduleKind kind);

// How gradients are summed. kHdt: by libhdt, timed by its schedules' cost model, and the engine's sum of the
// norm over all workers before the update. kRing: one ring of the whole bucket, as NCCL's.
enum class ReductionKind { kHdt, kRing };

const char* reduction_name(ReductionKind kind);

// How the training framework carries the plan out.
struct Runtime {
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
  // Sends of at most so many bytes a device go on in the background; larger ones keep the sender waiting
  // until they have arrived. None: all go in the background.
  std::optional<int64_t> background_send_bytes;
  // Gradients are reduced, bucket by bucket, while earlier units are still in their last backward.
  bool overlap_gradients = true;
  int64_t bucket_bytes = int64_t{25} << 20;
  ReductionKind reduction = ReductionKind::kRing;
  bool operator==(const Runtime&) const = default;
};

struct Plan {
  std::vector<Replica> replicas;
  Runtime runtime;
  // By class of the engine's groups (group_classes.h), as hdtcommd is to have them; `nics` are NIC kinds of
  // the cluster.
  std::map<std::string, ClassConfig> classes = {};

  int64_t global_batch_size() const;
  // Replica by replica, stage by stage: the index of a worker in all results.
  training::Layout layout() const;
  bool operator==(const Plan&) const = default;
};

// Refuses replicas without stages, and replicas of different models.
Status check_replicas(const Plan& plan);
// Refuses nodes that the cluster does not have, more devices than they have, and classes that cannot carry
// the plan.
Status check_nodes(const Plan& plan, const Cluster& cluster);
// Refuses (field and reason) what contradicts itself, the cluster, the model or the profile, and what would
// need a device twice. Memory is the predictor's question.
Status check_plan(const Plan& plan, const Cluster& cluster, const Model& model, const Profile& profile);

}  // namespace hdt::plan
