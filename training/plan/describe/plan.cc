// plan.cc: checks a plan against itself and against what it would run on.
//
// Plans may have ten thousand stages, and the search checks each plan that it plays. So nodes are found
// in a table, and what is equal for many stages is looked up once.
#include "training/plan/describe/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "training/engine/schedules.h"
#include "training/engine/shards.h"
#include "training/plan/describe/group_classes.h"
#include "training/plan/describe/node_link.h"
#include "training/plan/describe/refuse.h"

namespace hdt::plan {
namespace {

// The model and the profile must know every layer kind with the stage's degree and micro-batch size. The
// kinds that the stage does not hold are asked for too: a profile has all kinds or none
// (check_profile()).
Status check_stage(const std::string& field, const Stage& stage, const Replica& replica,
                   const std::string& device, const Model& model, const Profile& profile) {
  for (const LayerKind& kind : model.layers) {
    if (!kind.parameter_bytes.contains(stage.tensor_parallel))
      return refuse(field + ".tensor_parallel",
                    fmt::format("the model has no parameter_bytes of '{}' for degree {}", kind.name,
                                stage.tensor_parallel));
    if (!profile.find({device, kind.name, stage.tensor_parallel, replica.micro_batch_size}))
      return refuse(field, fmt::format("the profile has no '{}' on device '{}' with tensor_parallel {} and "
                                       "micro_batch_size {}",
                                       kind.name, device, stage.tensor_parallel, replica.micro_batch_size));
  }
  return Status::ok();
}

// Where the stage's attention is computed again, the profile must know what that takes.
Status check_attention(const std::string& field, const Stage& stage, const Replica& replica,
                       const std::string& device, const Model& model, const Profile& profile) {
  if (!stage.attention_only ||
      has_recomputed_attention(profile, model, device, stage.tensor_parallel, replica.micro_batch_size))
    return Status::ok();
  return refuse(field + ".recompute_granularity",
                fmt::format("'selective' given, but the profile does not know it of device '{}' with "
                            "tensor_parallel {} and micro_batch_size {}: expected "
                            "selective_more_seconds and selective_activation_bytes of all layers "
                            "(hdt-train --profile measures them), or 'full'",
                            device, stage.tensor_parallel, replica.micro_batch_size));
}

// A plan that recomputes needs a whole backward: in two parts the second part needs a layer's activations as
// well, and the predictor does not model how long they stay.
Status check_recomputation(const std::string& field, const Stage& stage, const Runtime& runtime) {
  if (stage.recomputed_layers == 0 && stage.attention_only)
    return refuse(field + ".recompute_granularity",
                  "'selective' given, but no layer is recomputed: expected recompute_layers of at least 1");
  if (stage.recomputed_layers == 0) return Status::ok();
  if (stage.recomputed_layers < 0 || stage.recomputed_layers > stage.layers)
    return refuse(field + ".recompute_layers", fmt::format("{} given, expected 0 to {}, the stage's layers",
                                                           stage.recomputed_layers, stage.layers));
  if (splits_backward(runtime.schedule))
    return refuse(
        field + ".recompute_layers",
        fmt::format("{} given; with schedule '{}' the second part of a backward needs activations, too",
                    stage.recomputed_layers, schedule_name(runtime.schedule)));
  return Status::ok();
}

// The chunks of a replica by themselves, and with its schedule and counts. The engine's rules
// (training::check_chunks()) in the words of a plan's file.
Status check_replica_chunks(const std::string& where, const Replica& replica, const Runtime& runtime) {
  const auto stages = static_cast<int>(replica.stages.size());
  const int chunks = replica.chunks();
  for (int s = 0; s < stages; ++s) {
    const Stage& stage = replica.stages[static_cast<size_t>(s)];
    const std::string field = fmt::format("{}.stage {}.layers", where, s + 1);
    if (stage.chunks() != chunks)
      return refuse(field,
                    fmt::format("{} chunks of the model given, stage 1 has {}: expected as many on each "
                                "stage of a replica",
                                stage.chunks(), chunks));
    int64_t layers = 0;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      // The first one has the embedding, the last one the head.
      const bool is_end = (s == 0 && chunk == 0) || (s == stages - 1 && chunk == chunks - 1);
      const int least = is_end && stages * chunks > 1 ? 0 : 1;
      if (stage.layers_of(chunk) < least)
        return refuse(field, fmt::format("{} given for chunk {}, expected at least {}",
                                         stage.layers_of(chunk), chunk + 1, least));
      layers += stage.layers_of(chunk);
    }
    if (layers != stage.layers)
      return refuse(field, fmt::format("the chunks' sum to {}, expected {}", layers, stage.layers));
  }
  if (chunks > 1 && runtime.schedule != ScheduleKind::kInterleaved)
    return refuse(where + ".stage 1.layers",
                  fmt::format("{} chunks given, schedule '{}' is for one: expected schedule 'interleaved'",
                              chunks, schedule_name(runtime.schedule)));
  if (chunks > 1 && stages < 2)
    return refuse(where + ".stage", fmt::format("1 given with {} chunks, expected at least 2", chunks));
  if (chunks > 1 && replica.micro_batches % stages != 0)
    return refuse(where + ".micro_batches",
                  fmt::format("{} given, expected a multiple of the {} stages, as these have several chunks: "
                              "{} left over",
                              replica.micro_batches, stages, replica.micro_batches % stages));
  // The lists count each micro-batch in each chunk, in an int.
  if (int64_t{chunks} * replica.micro_batches > std::numeric_limits<int>::max())
    return refuse(where + ".micro_batches",
                  fmt::format("{} given with {} chunks on each stage, expected at most {}",
                              replica.micro_batches, chunks, std::numeric_limits<int>::max() / chunks));
  return training::check_chunks(runtime.schedule, stages, replica.micro_batches, chunks);
}

// Replicas with one chunk each run 1F1B under either name. A plan that names chunks and has none is a slip.
Status check_interleaved(const Plan& plan) {
  if (plan.runtime.schedule != ScheduleKind::kInterleaved) return Status::ok();
  if (std::ranges::any_of(plan.replicas, [](const Replica& replica) { return replica.chunks() > 1; }))
    return Status::ok();
  return refuse("schedule",
                "'interleaved' given, but every stage has one chunk of the model: expected several, as in "
                "layers = [2, 2], or schedule '1f1b'");
}

// The engine's rules (training::check_shard_options()) in the words of a plan's file.
Status check_shard_weights(const Plan& plan) {
  bool all_alike = true;
  for (size_t r = 0; r < plan.replicas.size(); ++r) {
    for (size_t s = 0; s < plan.replicas[r].stages.size(); ++s) {
      const double weight = plan.replicas[r].stages[s].optimizer_shard_weight;
      if (weight == 1) continue;
      all_alike = false;
      const std::string field = fmt::format("replica {}.stage {}.optimizer_shard_weight", r + 1, s + 1);
      if (!plan.runtime.use_distributed_optimizer)
        return refuse(field, fmt::format("{} given; optimizer states are whole, expected "
                                         "use_distributed_optimizer = true",
                                         weight));
      if (!std::isfinite(weight) || weight < 0)
        return refuse(field, fmt::format("{} given, expected a finite number of at least 0", weight));
    }
  }
  if (all_alike) return Status::ok();
  training::ShardOptions shards{true, {}};
  for (const Replica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages) shards.weights.push_back(stage.optimizer_shard_weight);
  }
  const Status fits = training::check_shard_options(plan.layout(), shards);
  return fits.is_ok() ? fits : refuse("optimizer_shard_weight", fits.message());
}

// All other checks may use the first replica and its first stage.
Status check_not_empty(const Plan& plan) {
  if (plan.replicas.empty()) return refuse("replica", "none given, expected at least one");
  for (size_t r = 0; r < plan.replicas.size(); ++r) {
    if (plan.replicas[r].stages.empty())
      return refuse(fmt::format("replica {}.stage", r + 1), "none given, expected at least one");
  }
  return Status::ok();
}

// Counts the devices that the stages of a plan take, by node.
class Devices {
 public:
  explicit Devices(const Cluster& cluster) {
    for (const Node& node : cluster.nodes) nodes_.try_emplace(node.name, &node, 0);
  }

  // kConfig, which names `field`, if the cluster has no such node.
  Result<const Node*> find(const std::string& field, const Stage& stage) const {
    const auto found = nodes_.find(stage.node);
    if (found == nodes_.end()) return refuse(field, fmt::format("the cluster has no node '{}'", stage.node));
    return found->second.first;
  }

  // Takes the devices of stages[index]. If none are left, the message distinguishes a pipeline that
  // comes back to a node from a node that simply has too few devices. The stage's node must exist.
  Status take(const std::string& field, const std::vector<Stage>& stages, size_t index) {
    const Stage& stage = stages[index];
    auto& [node, taken] = nodes_.at(stage.node);
    taken += stage.tensor_parallel;
    if (taken <= node->devices) return Status::ok();
    // The first stage of the replica on this node. If the stage just before this one is elsewhere, the
    // pipeline has left the node and comes back.
    const auto before = std::ranges::find(stages, stage.node, &Stage::node) - stages.begin();
    if (index > 0 && static_cast<size_t>(before) < index && stages[index - 1].node != stage.node)
      return refuse(
          field,
          fmt::format("a cycle: the pipeline has left node '{}' after stage {} and comes back, but its "
                      "{} devices are taken",
                      node->name, before + 1, node->devices));
    return refuse(field, fmt::format("node '{}' has {} devices; the plan needs {} or more of them",
                                     node->name, node->devices, taken));
  }

  const Node& of(const Stage& stage) const { return *nodes_.at(stage.node).first; }

 private:
  std::unordered_map<std::string_view, std::pair<const Node*, int>> nodes_;
};

// Any two nodes of the plan may talk in a reduction, whatever its algorithm, and two workers on one node talk
// inside it. Links depend on the kinds of nodes alone, so kinds are compared, and not the nodes themselves.
std::optional<MissingLink> find_missing_link(const Plan& plan, const Cluster& cluster, const Devices& devices,
                                             const Profile& profile) {
  struct Used {
    // The first node of this kind stands for all.
    const Node* node = nullptr;
    // The number of workers, by node.
    std::map<std::string_view, int> workers;
  };
  std::map<std::string, Used> used;  // by kind of node
  for (const Replica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages) {
      const Node& node = devices.of(stage);
      Used& kind = used.try_emplace(node.kind(), Used{&node, {}}).first->second;
      ++kind.workers[stage.node];
    }
  }
  for (const auto& [from, from_nodes] : used) {
    for (const auto& [to, to_nodes] : used) {
      // Each pair of kinds once; a kind with itself only if the plan has two nodes of it.
      const bool talk = from < to || (from == to && from_nodes.workers.size() > 1);
      if (!talk) continue;
      // Where a kind talks with itself, its second node is the other one.
      const auto one = from_nodes.workers.begin();
      const auto other = from == to ? std::next(one) : to_nodes.workers.begin();
      MissingLink missing{std::string(one->first), std::string(other->first), from, to, "", ""};
      const int nic = cluster.nic_between(*from_nodes.node, *to_nodes.node);
      if (nic < 0) {
        missing.field = "node";
        missing.reason = fmt::format("'{}' and '{}' have no kind of NIC in common", missing.from, missing.to);
        return missing;
      }
      if (!link_between(cluster, profile, *from_nodes.node, *to_nodes.node, false)) {
        missing.field = "link";
        missing.reason =
            fmt::format("the profile has none between '{}' and '{}'{}", from_nodes.node->device,
                        to_nodes.node->device, cluster.nics.empty() ? "" : " over " + cluster.nics[nic].name);
        return missing;
      }
    }
    // Two workers share a node, so they use the link inside it.
    const auto shared =
        std::ranges::find_if(from_nodes.workers, [](const auto& node) { return node.second > 1; });
    const std::string& device = from_nodes.node->device;
    if (shared != from_nodes.workers.end() && !profile.find_link(device, device, true)) {
      const std::string name(shared->first);
      return MissingLink{name, name,   from,
                         from, "link", fmt::format("the profile has none inside a node of '{}'", device)};
    }
  }
  return std::nullopt;
}

}  // namespace

const char* reduction_name(ReductionKind kind) { return kind == ReductionKind::kRing ? "ring" : "hdt"; }

// In 64 bits, as the product of two ints may overflow.
int64_t Plan::global_batch_size() const {
  int64_t samples = 0;
  for (const Replica& replica : replicas)
    samples += int64_t{replica.micro_batch_size} * replica.micro_batches;
  return samples;
}

int Stage::recomputed_of(int chunk) const {
  int before = 0;
  for (int earlier = 0; earlier < chunk; ++earlier) before += layers_of(earlier);
  return std::clamp(recomputed_layers - before, 0, layers_of(chunk));
}

training::Layout Plan::layout() const {
  // All replicas have the same sum of layers (check_replicas), so that of the first one holds.
  std::vector<training::Replica> shapes;
  int num_layers = 0;
  for (const Stage& stage : replicas.front().stages) num_layers += stage.layers;
  for (const Replica& replica : replicas) {
    shapes.push_back({{}, replica.micro_batch_size, replica.micro_batches, replica.chunks()});
    for (int chunk = 0; chunk < replica.chunks(); ++chunk) {
      for (const Stage& stage : replica.stages) shapes.back().stage_layers.push_back(stage.layers_of(chunk));
    }
  }
  return {num_layers, std::move(shapes), training::RankOrder::kTpPpDp};
}

Status check_replicas(const Plan& plan) {
  HDT_RETURN_IF_ERROR(check_not_empty(plan));
  // The first replica says how many layers the model has.
  int64_t expected = 0;
  for (size_t r = 0; r < plan.replicas.size(); ++r) {
    int64_t layers = 0;
    for (size_t s = 0; s < plan.replicas[r].stages.size(); ++s) {
      const Stage& stage = plan.replicas[r].stages[s];
      layers += stage.layers;
      HDT_RETURN_IF_ERROR(
          check_recomputation(fmt::format("replica {}.stage {}", r + 1, s + 1), stage, plan.runtime));
    }
    HDT_RETURN_IF_ERROR(
        check_replica_chunks(fmt::format("replica {}", r + 1), plan.replicas[r], plan.runtime));
    if (r == 0) expected = layers;
    if (layers != expected)
      return refuse(fmt::format("replica {}.stage.layers", r + 1),
                    fmt::format("sum to {}, those of replica 1 to {}: replicas are copies of one model",
                                layers, expected));
  }
  HDT_RETURN_IF_ERROR(check_shard_weights(plan));
  return check_interleaved(plan);
}

Status check_nodes(const Plan& plan, const Cluster& cluster) {
  Devices devices(cluster);
  for (size_t r = 0; r < plan.replicas.size(); ++r) {
    for (size_t s = 0; s < plan.replicas[r].stages.size(); ++s) {
      const Stage& stage = plan.replicas[r].stages[s];
      const std::string field = fmt::format("replica {}.stage {}.node", r + 1, s + 1);
      // find() first: take() relies on the node's existence.
      HDT_RETURN_IF_ERROR(devices.find(field, stage).status());
      HDT_RETURN_IF_ERROR(devices.take(field, plan.replicas[r].stages, s));
    }
  }
  return check_classes(plan, cluster);
}

std::string MissingLink::text() const {
  return from == to ? fmt::format("no link inside node '{}': {}", from, reason)
                    : fmt::format("no link between nodes '{}' and '{}': {}", from, to, reason);
}

std::optional<MissingLink> missing_link(const Plan& plan, const Cluster& cluster, const Profile& profile) {
  return find_missing_link(plan, cluster, Devices(cluster), profile);
}

Status check_plan(const Plan& plan, const Cluster& cluster, const Model& model, const Profile& profile) {
  HDT_RETURN_IF_ERROR(check_not_empty(plan));
  Devices devices(cluster);
  std::set<std::tuple<std::string, int, int>> profiled;  // looked up once for stages that are alike
  for (size_t r = 0; r < plan.replicas.size(); ++r) {
    const Replica& replica = plan.replicas[r];
    const std::string where = fmt::format("replica {}", r + 1);
    HDT_RETURN_IF_ERROR(check_replica_chunks(where, replica, plan.runtime));
    int layers = 0;
    for (size_t s = 0; s < replica.stages.size(); ++s) {
      const Stage& stage = replica.stages[s];
      const std::string field = fmt::format("{}.stage {}", where, s + 1);
      const Result<const Node*> node = devices.find(field + ".node", stage);
      if (!node.is_ok()) return node.status();
      const std::string& device = node.value()->device;
      if (profiled.emplace(device, stage.tensor_parallel, replica.micro_batch_size).second)
        HDT_RETURN_IF_ERROR(check_stage(field, stage, replica, device, model, profile));
      if (stage.tensor_parallel > 1 && model.has_sums() &&
          !link_between(cluster, profile, *node.value(), *node.value(), true))
        return refuse(
            field + ".tensor_parallel",
            fmt::format("{} given, and layers of model '{}' have sums over these devices; the profile "
                        "has no link inside a node of '{}'",
                        stage.tensor_parallel, model.name, device));
      HDT_RETURN_IF_ERROR(check_recomputation(field, stage, plan.runtime));
      HDT_RETURN_IF_ERROR(check_attention(field, stage, replica, device, model, profile));
      HDT_RETURN_IF_ERROR(devices.take(field + ".node", replica.stages, s));
      layers += stage.layers;
    }
    if (layers != model.num_layers())
      return refuse(where + ".stage.layers", fmt::format("sum to {}, expected the {} of model '{}'", layers,
                                                         model.num_layers(), model.name));
  }
  HDT_RETURN_IF_ERROR(check_shard_weights(plan));
  HDT_RETURN_IF_ERROR(check_interleaved(plan));
  if (const auto missing = find_missing_link(plan, cluster, devices, profile))
    return refuse(missing->field, missing->reason);
  return check_classes(plan, cluster);
}

}  // namespace hdt::plan
