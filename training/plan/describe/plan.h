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

// What a stage computes again of its recomputed layers, whole layers or attention: the values of
// recompute_granularity in a plan's file, and of Megatron's flag.
inline constexpr const char* kFullGranularity = "full";
inline constexpr const char* kSelectiveGranularity = "selective";

// A tensor-parallel group on one node that holds one range of units, or several (model chunks, for
// interleaved 1F1B). It is one worker of the plan.
struct Stage {
  // Transformer layers, those of all its chunks. The first stage of a replica has the embedding in addition,
  // in its first chunk, the last one the head, in its last chunk.
  int layers = 1;
  // A name of the cluster's.
  std::string node;
  // The number of devices of the node that the stage takes.
  int tensor_parallel = 1;
  // The first `recomputed_layers` of its layers are computed again for their backward (recomputation.h): they
  // keep their input instead of their activations, and run their forward again; or, where `attention_only`
  // is set, they lack what attention makes of queries, keys and values, and compute that again.
  int recomputed_layers = 0;
  // Where the stage has several chunks: the layers of each, first chunk first. They sum to `layers`. Empty
  // where one chunk has all layers. Chunk c of stage s follows chunk c of stage s - 1 in the model, and
  // that of the first stage follows chunk c - 1 of the last one (training/engine/layout.h).
  std::vector<int> chunk_layers = {};
  // With sharded optimizer states (Runtime): how much of the states of its units the stage keeps, in
  // proportion to their other owners. 0: nothing.
  double optimizer_shard_weight = 1;
  // Only where layers are recomputed.
  bool attention_only = false;
  bool operator==(const Stage&) const = default;

  int chunks() const { return chunk_layers.empty() ? 1 : static_cast<int>(chunk_layers.size()); }
  int layers_of(int chunk) const {
    return chunk_layers.empty() ? layers : chunk_layers[static_cast<size_t>(chunk)];
  }
  // The layers of a chunk that are recomputed, its first ones.
  int recomputed_of(int chunk) const;
};

// One copy of the model. Replicas may differ in everything but the number of layers. All stages of one have
// the same number of chunks.
struct Replica {
  // Samples of one micro-batch.
  int micro_batch_size = 1;
  // Micro-batches of one step. A replica processes micro_batch_size x micro_batches samples a step.
  int micro_batches = 1;
  std::vector<Stage> stages;
  bool operator==(const Replica&) const = default;

  // The chunks of each stage. There must be a stage.
  int chunks() const { return stages.front().chunks(); }
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
  // True: each owner of a unit keeps the optimizer's states of its own shard only and updates that (ZeRO-1;
  // training/engine/shards.h). Gradients are reduced by a reduce-scatter, and an allgather brings the
  // parameters under the first forward of the next step.
  bool use_distributed_optimizer = false;
  // True: every send waits for its receiver, and a send that a receive from the same neighbour follows is one
  // exchange with it: both are posted at once and waited for together, as Megatron does.
  bool lockstep_exchange = false;
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
// chunks do not fit a replica or the schedule, or recomputation or weights of shards do not. Needs no other
// file.
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
