// plan_text.cc: counts equal replicas and equal neighbouring stages.
#include "training/plan/describe/plan_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hdt::plan {
namespace {

// The kind of each node, by its name. The names are those in the cluster, which outlives the table.
using KindOf = std::unordered_map<std::string_view, std::string>;

KindOf kinds_of(const Cluster& cluster) {
  KindOf kinds;
  for (const Node& node : cluster.nodes) kinds.emplace(node.name, node.kind());
  return kinds;
}

// "h200", or "h200/2" with its tensor-parallel degree.
std::string stage_kind(const Stage& stage, const KindOf& kinds) {
  std::string text = kinds.at(stage.node);
  if (stage.tensor_parallel > 1) text += fmt::format("/{}", stage.tensor_parallel);
  return text;
}

// Joins the texts, and replaces equal ones that follow each other by their number and one of them.
std::string runs(const std::vector<std::string>& texts, const char* times, const char* between) {
  std::vector<std::string> parts;
  for (size_t first = 0; first < texts.size();) {
    size_t end = first;
    while (end < texts.size() && texts[end] == texts[first]) ++end;
    parts.push_back(fmt::format("{}{}{}", end - first, times, texts[first]));
    first = end;
  }
  return fmt::format("{}", fmt::join(parts, between));
}

}  // namespace

// Replicas are compared as text: two are equal if a reader could not tell them apart. Their order is no part
// of the shape.
std::string shape_text(const Plan& plan, const Cluster& cluster) {
  const KindOf kinds = kinds_of(cluster);
  std::vector<std::string> replicas;
  for (const Replica& replica : plan.replicas) {
    std::vector<std::string> stages;
    for (const Stage& stage : replica.stages) stages.push_back(stage_kind(stage, kinds));
    replicas.push_back(fmt::format("({}) mbs {}", runs(stages, " ", ", "), replica.micro_batch_size));
  }
  std::ranges::sort(replicas);
  return runs(replicas, " x ", " + ");
}

std::string plan_text(const Plan& plan, const Cluster& cluster) {
  const KindOf kinds = kinds_of(cluster);
  std::vector<std::string> replicas;
  for (const Replica& replica : plan.replicas) {
    std::vector<std::string> stages;
    for (const Stage& stage : replica.stages) {
      const std::string layers = stage.chunk_layers.empty()
                                     ? fmt::format("{}", stage.layers)
                                     : fmt::format("{}", fmt::join(stage.chunk_layers, "+"));
      stages.push_back(fmt::format("{} {}", layers, stage_kind(stage, kinds)));
      if (stage.recomputed_layers > 0)
        stages.back() += fmt::format(" ({} recomputed{})", stage.recomputed_layers,
                                     stage.attention_only ? ", attention only" : "");
      if (stage.optimizer_shard_weight != 1)
        stages.back() += fmt::format(" (shards of weight {})", stage.optimizer_shard_weight);
    }
    replicas.push_back(fmt::format("({}) of {} x {}", fmt::join(stages, ", "), replica.micro_batches,
                                   replica.micro_batch_size));
  }
  return runs(replicas, " x ", " + ") +
         (plan.runtime.use_distributed_optimizer ? ", optimizer states sharded" : "");
}

}  // namespace hdt::plan
