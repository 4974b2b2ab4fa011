// strategy.cc: plans as strategies and back, and the places of ranks.
#include "training/plan/convert/strategy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "training/plan/describe/refuse.h"

namespace hdt::plan {
namespace {

// Settings of hdt-train that no flag of Megatron has the meaning of.
std::vector<std::string> settings_of_plans_only(const Plan& plan) {
  std::vector<std::string> warnings;
  const Runtime& runtime = plan.runtime;
  // Chunks say interleaved by themselves.
  if (runtime.schedule != ScheduleKind::kOneForwardOneBackward &&
      runtime.schedule != ScheduleKind::kInterleaved)
    warnings.push_back(fmt::format(
        "schedule '{0}' is left out: Megatron and its forks run 1F1B; give hdt-train --schedule {0}",
        schedule_name(runtime.schedule)));
  if (runtime.bucket_bytes != Runtime().bucket_bytes)
    warnings.push_back(fmt::format(
        "bucket_bytes {} is left out: give --ddp-bucket-size, which counts elements", runtime.bucket_bytes));
  if (!runtime.overlap_gradients)
    warnings.emplace_back(
        "overlap_gradients = false is left out: leave out --overlap-grad-reduce for Megatron");
  if (runtime.background_send_bytes)
    warnings.emplace_back("background_send_bytes is left out: no flag says it");
  if (runtime.lockstep_exchange) warnings.emplace_back("lockstep_exchange is left out: no flag says it");
  if (!plan.classes.empty())
    warnings.emplace_back(
        "[class] sections are left out: hdt-plan export --classes writes them for hdtcommd");
  return warnings;
}

}  // namespace

std::vector<training::Position> positions_by_rank(const training::Layout& layout) {
  std::vector<training::Position> positions;
  for (int rank = 0; rank < layout.world_size(); ++rank) positions.push_back(layout.position_of(rank));
  return positions;
}

Status place(Strategy& strategy, const std::vector<training::Position>& ranks, const Cluster& cluster,
             const std::vector<std::string>& kinds) {
  std::vector<const Node*> nodes;
  for (const Node& node : cluster.nodes) {
    if (kinds.empty() || std::ranges::find(kinds, node.device) != kinds.end()) nodes.push_back(&node);
  }
  if (!kinds.empty())
    std::ranges::stable_sort(nodes, {},
                             [&](const Node* node) { return std::ranges::find(kinds, node->device); });
  size_t node = 0;
  int used = 0;  // devices of it
  for (const training::Position& position : ranks) {
    while (node < nodes.size() && used == nodes[node]->devices) {
      ++node;
      used = 0;
    }
    if (node == nodes.size()) {
      return {Code::kConfig,
              fmt::format("{} ranks, but the cluster has fewer devices{}", ranks.size(),
                          kinds.empty() ? "" : fmt::format(" of the kinds {}", fmt::join(kinds, ", ")))};
    }
    Worker& worker =
        strategy.workers[static_cast<size_t>(position.replica)][static_cast<size_t>(position.stage)];
    worker.node = nodes[node]->name;
    worker.kind = nodes[node]->device;
    ++used;
  }
  return Status::ok();
}

Result<Warned<Strategy>> strategy_of_plan(const Plan& plan, const Cluster* cluster) {
  HDT_RETURN_IF_ERROR(check_replicas(plan));
  if (cluster) HDT_RETURN_IF_ERROR(check_nodes(plan, *cluster));
  Strategy strategy{plan.layout()};
  strategy.runtime = plan.runtime;
  for (size_t r = 0; r < plan.replicas.size(); ++r) {
    auto& workers = strategy.workers.emplace_back();
    for (size_t s = 0; s < plan.replicas[r].stages.size(); ++s) {
      const Stage& stage = plan.replicas[r].stages[s];
      if (stage.tensor_parallel != 1)
        return refuse(
            fmt::format("replica {}.stage {}.tensor_parallel", r + 1, s + 1),
            fmt::format("{} given; HDT has no tensor parallelism yet, expected 1", stage.tensor_parallel));
      const std::string& kind =
          cluster ? cluster->nodes[static_cast<size_t>(cluster->index_of(stage.node))].device : stage.node;
      workers.push_back(
          {kind, stage.node, stage.recomputed_layers, stage.optimizer_shard_weight, stage.attention_only});
    }
  }
  return Warned<Strategy>{std::move(strategy), settings_of_plans_only(plan)};
}

Result<Plan> plan_of_strategy(const Strategy& strategy) {
  const training::Layout& layout = strategy.layout;
  Plan plan;
  plan.runtime = strategy.runtime;
  for (int r = 0; r < layout.num_replicas(); ++r) {
    const training::Replica& replica = layout.replica(r);
    if (replica.chunks > 1) plan.runtime.schedule = ScheduleKind::kInterleaved;
    plan.replicas.push_back({replica.micro_batch_size, replica.num_micro_batches, {}});
    for (int s = 0; s < replica.stages(); ++s) {
      const Worker& worker = strategy.worker({r, s});
      std::vector<int> chunks;
      for (int c = 0; c < replica.chunks; ++c)
        chunks.push_back(replica.stage_layers[c * replica.stages() + s]);
      Stage stage{std::accumulate(chunks.begin(), chunks.end(), 0), worker.node, 1, worker.recomputed_layers};
      if (replica.chunks > 1) stage.chunk_layers = std::move(chunks);
      stage.optimizer_shard_weight = worker.optimizer_shard_weight;
      stage.attention_only = worker.attention_only;
      plan.replicas.back().stages.push_back(std::move(stage));
    }
  }
  HDT_RETURN_IF_ERROR(check_replicas(plan));
  return plan;
}

std::string split_text(const training::Replica& replica) {
  std::string text;
  for (int i = 0; i < replica.virtual_stages(); ++i) {
    if (i > 0) text += i % replica.stages() == 0 ? " | " : " + ";
    text += fmt::format("{}", replica.stage_layers[static_cast<size_t>(i)]);
  }
  return text;
}

}  // namespace hdt::plan
