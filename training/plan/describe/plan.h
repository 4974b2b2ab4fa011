// plan.h: who computes what: the replicas of a plan, their stages, the node of each stage, and how the
// training framework runs them. A plan is a value; it is read from a file (toml_files.h) or found by the
// search.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "training/engine/layout.h"
#include "training/engine/schedules.h"
#include "training/plan/describe/cluster.h"
#include "training/plan/describe/model.h"
#include "training/plan/describe/profile.h"

namespace hdt::plan {

// A tensor-parallel group on one node that holds consecutive units. It is one worker of the plan.
struct Stage {
  // Transformer layers. The first stage of a replica has the embedding in addition, the last one the
  // head.
  int layers = 1;
  // A name of the cluster's.
  std::string node;
  // The number of devices of the node that the stage takes.
  int tensor_parallel = 1;
  // The first `recomputed_layers` of its layers keep their input instead of their activations, and run
  // their forward again before their backward (recomputation.h).
  int recomputed_layers = 0;
  bool operator==(const Stage&) const = default;
};

// One copy of the model. Replicas may differ in everything but the number of layers.
struct Replica {
  // Samples of one micro-batch.
  int micro_batch_size = 1;
  // Micro-batches of one step. A replica processes micro_batch_size x micro_batches samples a step.
  int micro_batches = 1;
  std::vector<Stage> stages;
  bool operator==(const Replica&) const = default;
};

// The order in which a stage does its forwards and backwards (training/engine/schedules.h).
using training::kScheduleKinds;
using training::schedule_name;
using training::ScheduleKind;

// How gradients are summed.
// - kHdt: by libhdt. The cost model of its schedules gives the time, and all workers wait for the sum of
//   the gradients' norm before the update, as they do in hdt-train.
// - kRing: one ring over the whole bucket, as NCCL does. There is no sum of the norm.
enum class ReductionKind { kHdt, kRing };

// The name in a plan's file: "hdt" or "ring".
const char* reduction_name(ReductionKind kind);

// How the training framework carries the plan out.
struct Runtime {
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
  // Sends of at most so many bytes a device go on in the background. A larger send makes its sender wait
  // until the message has arrived. If there is no value, all sends go on in the background.
  std::optional<int64_t> background_send_bytes;
  // True: gradients are reduced bucket by bucket, while the backward of earlier units is still running.
  // False: they are reduced after a worker's last step, and each owner set is one reduction.
  bool overlap_gradients = true;
  // A bucket takes units until another one would bring it over this size (training/engine/ownership.h).
  // 25 MiB is also the default of PyTorch's DDP.
  int64_t bucket_bytes = int64_t{25} << 20;
  ReductionKind reduction = ReductionKind::kRing;
  bool operator==(const Runtime&) const = default;
};

// The whole plan. check_plan() must accept it before it is predicted.
struct Plan {
  std::vector<Replica> replicas;
  Runtime runtime;
  // The settings that hdtcommd is to have, by class of the engine's groups (group_classes.h). Here
  // `nics` holds NIC kinds of the cluster instead of NICs. Empty: the plan says nothing about classes.
  std::map<std::string, ClassConfig> classes = {};

  // Samples of one step, all replicas together.
  int64_t global_batch_size() const;
  // The engine's view of the plan, which numbers the workers replica by replica, and in a replica stage
  // by stage. This number is the index of a worker in all results. Needs at least one replica.
  training::Layout layout() const;
  bool operator==(const Plan&) const = default;
};

// kConfig if there are no replicas, a replica has no stages, replicas have different numbers of layers,
// or recomputation does not fit a stage or the schedule. Needs no other file.
Status check_replicas(const Plan& plan);
// kConfig if a stage is on a node that the cluster does not have, the stages need more devices than a
// node has, or the classes cannot carry the plan.
Status check_nodes(const Plan& plan, const Cluster& cluster);
// Two nodes that talk in a plan, and that no link connects.
struct MissingLink {
  // Names of nodes. The same one twice: two stages on it talk inside the node.
  std::string from, to;
  // Their kinds (Node::kind()), on which alone it depends.
  std::string from_kind, to_kind;
  // The field at fault and what is wrong with it, for check_plan().
  std::string field, reason;

  // "no link between nodes 'a' and 'b': ..."
  std::string text() const;
};
// The first one that a prediction would ask for; nothing: all nodes that talk have a link. Needs only the
// nodes of the stages, which the cluster must have.
std::optional<MissingLink> missing_link(const Plan& plan, const Cluster& cluster, const Profile& profile);
// All checks that a prediction relies on: kConfig with field and reason if the plan contradicts itself,
// the cluster, the model or the profile, or would need a device twice. Whether the plan fits memory is
// checked by the predictor (predictor.h).
Status check_plan(const Plan& plan, const Cluster& cluster, const Model& model, const Profile& profile);

}  // namespace hdt::plan
