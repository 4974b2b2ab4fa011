// plan.cc: a plan against what it would run on.
#include "training/plan/plan.h"

#include <fmt/format.h>

#include <map>
#include <set>

namespace hdt::plan {
namespace {

Status refuse(const std::string& field, const std::string& reason) {
  return {Code::kConfig, fmt::format("{}: {}", field, reason)};
}

Status check_stage(const std::string& field, const Stage& stage, const Replica& replica,
                   const Cluster& cluster, const Model& model, const Profile& profile) {
  const int node = cluster.index_of(stage.node);
  if (node < 0) return refuse(field + ".node", fmt::format("the cluster has no node '{}'", stage.node));
  const std::string& device = cluster.nodes[node].device;
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

Status check_links(const Plan& plan, const Cluster& cluster, const Profile& profile) {
  std::set<std::string> used;
  for (const Replica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages) used.insert(stage.node);
  }
  for (const std::string& from : used) {
    for (const std::string& to : used) {
      const Node& a = cluster.nodes[cluster.index_of(from)];
      const Node& b = cluster.nodes[cluster.index_of(to)];
      if (from < to && !profile.find_link(a.device, b.device, false))
        return refuse("link", fmt::format("the profile has none between '{}' and '{}'", a.device, b.device));
    }
  }
  // Two workers on one node talk inside it.
  std::map<std::string, int> workers;
  for (const Replica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages) {
      const Node& node = cluster.nodes[cluster.index_of(stage.node)];
      if (++workers[stage.node] > 1 && !profile.find_link(node.device, node.device, true))
        return refuse("link", fmt::format("the profile has none inside a node of '{}'", node.device));
    }
  }
  return Status::ok();
}

}  // namespace

const char* schedule_name(ScheduleKind kind) {
  return kind == ScheduleKind::kLockstep ? "1f1b-lockstep" : "1f1b";
}

int64_t Plan::global_batch_size() const {
  int64_t samples = 0;
  for (const Replica& replica : replicas)
    samples += int64_t{replica.micro_batch_size} * replica.micro_batches;
  return samples;
}

training::Layout Plan::layout() const {
  std::vector<training::Replica> shapes;
  int num_layers = 0;
  for (const Stage& stage : replicas.front().stages) num_layers += stage.layers;
  for (const Replica& replica : replicas) {
    shapes.push_back({{}, replica.micro_batch_size, replica.micro_batches});
    for (const Stage& stage : replica.stages) shapes.back().stage_layers.push_back(stage.layers);
  }
  return {num_layers, std::move(shapes), training::RankOrder::kTpPpDp};
}

Status check_plan(const Plan& plan, const Cluster& cluster, const Model& model, const Profile& profile) {
  if (plan.replicas.empty()) return refuse("replica", "none given, expected at least one");
  std::map<std::string, int> taken;
  for (size_t r = 0; r < plan.replicas.size(); ++r) {
    const Replica& replica = plan.replicas[r];
    const std::string where = fmt::format("replica {}", r + 1);
    if (replica.stages.empty()) return refuse(where + ".stage", "none given, expected at least one");
    int layers = 0;
    for (size_t s = 0; s < replica.stages.size(); ++s) {
      const Stage& stage = replica.stages[s];
      const std::string field = fmt::format("{}.stage {}", where, s + 1);
      HDT_RETURN_IF_ERROR(check_stage(field, stage, replica, cluster, model, profile));
      layers += stage.layers;
      taken[stage.node] += stage.tensor_parallel;
      const Node& node = cluster.nodes[cluster.index_of(stage.node)];
      if (taken[stage.node] > node.devices)
        return refuse(field + ".node",
                      fmt::format("node '{}' has {} devices; the plan needs {} or more of them", node.name,
                                  node.devices, taken[stage.node]));
    }
    if (layers != model.num_layers())
      return refuse(where + ".stage.layers", fmt::format("sum to {}, expected the {} of model '{}'", layers,
                                                         model.num_layers(), model.name));
  }
  return check_links(plan, cluster, profile);
}

}  // namespace hdt::plan
