// survivors.cc: see survivors.h. Whatever decides over the layout is made the same on all ranks first: they
// may be one step apart, so rank 0's speeds count.
#include "tools/hdt-train/survivors.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>

#include "base/available_memory.h"
#include "tools/hdt-train/memory_check.h"
#include "training/engine/hdt_operation.h"
#include "training/engine/shards.h"
#include "training/torch/tensor_names.h"

namespace hdt::tools {
namespace {

using training::Layout;

// What a rank computes in a step: the parameters of its matrix products, for each sample. The embedding is
// looked up, so it does not count.
double work_of(const TrainFlags& flags, const Layout& layout, int rank) {
  double parameters = 0;
  for (const training::UnitRange& range : layout.ranges_of(rank)) {
    for (const int unit : range.numbers()) {
      if (unit == layout.embedding_unit()) continue;
      parameters += static_cast<double>(training::elements_of(training::named_tensors(flags.shape, unit)));
      if (unit == layout.head_unit() && layout.has_tied_unit())
        parameters += static_cast<double>(
            training::elements_of(training::named_tensors(flags.shape, training::kTiedUnit)));
    }
  }
  return parameters * static_cast<double>(layout.replica(layout.position_of(rank).replica).samples());
}

// Speeds above 0 stay; the others become the smallest of them, or 1 if there are none.
void fill_unknown(std::vector<double>& speeds) {
  double least = 0;
  for (const double speed : speeds) {
    if (speed > 0 && (least == 0 || speed < least)) least = speed;
  }
  for (double& speed : speeds) {
    if (!(speed > 0)) speed = least > 0 ? least : 1;
  }
}

// The plan's stages with the devices that they have, and the new layers. A stage that recomputes layers keeps
// no more activations than before.
plan::Plan plan_of_survivors(const plan::Plan& first_plan, const Layout& first,
                             const training::ElasticLayout& made) {
  plan::Plan plan = first_plan;
  plan.replicas.clear();
  for (int index = 0; index < made.layout.num_replicas(); ++index) {
    const training::Replica& from = made.layout.replica(index);
    plan::Replica& replica = plan.replicas.emplace_back();
    replica.micro_batch_size = from.micro_batch_size;
    replica.micro_batches = from.num_micro_batches;
    for (int place = 0; place < from.stages(); ++place) {
      const int rank = made.layout.rank_of({index, place, 0});
      const auto first_rank = std::ranges::find(made.new_ranks, rank) - made.new_ranks.begin();
      const training::Position position = first.position_of(static_cast<int>(first_rank));
      plan::Stage stage = first_plan.replicas[static_cast<size_t>(position.replica)]
                              .stages[static_cast<size_t>(position.stage)];
      const int kept = stage.layers - stage.recomputed_layers;
      stage.layers = 0;
      stage.chunk_layers.clear();
      for (int chunk = 0; chunk < from.chunks; ++chunk) {
        stage.chunk_layers.push_back(from.stage_layers[static_cast<size_t>(chunk * from.stages() + place)]);
        stage.layers += stage.chunk_layers.back();
      }
      if (from.chunks == 1) stage.chunk_layers.clear();
      if (stage.recomputed_layers > 0) stage.recomputed_layers = std::max(0, stage.layers - kept);
      stage.attention_only = stage.attention_only && stage.recomputed_layers > 0;
      replica.stages.push_back(std::move(stage));
    }
  }
  return plan;
}

}  // namespace

std::vector<int> ranks_left(int size, const std::set<int>& lost) {
  std::vector<int> left;
  for (int rank = 0; rank < size; ++rank) {
    if (!lost.contains(rank)) left.push_back(rank);
  }
  return left;
}

std::vector<double> of_survivors(const std::vector<double>& values, const std::vector<int>& new_ranks) {
  std::vector<double> left;
  for (size_t rank = 0; rank < new_ranks.size(); ++rank) {
    if (new_ranks[rank] >= 0) left.push_back(values[rank]);
  }
  return left;
}

RankSpeeds speeds_of_run(const TrainFlags& flags, const Layout& present, const std::set<int>& lost,
                         const RunSoFar& so_far, const std::vector<double>& before) {
  const int first_size = present.world_size() + static_cast<int>(lost.size());
  const std::vector<int> left = ranks_left(first_size, lost);
  RankSpeeds found{std::vector<double>(static_cast<size_t>(first_size), 0), ""};
  const std::span<const training::StepTimes> times = so_far.times.ranks();
  for (size_t rank = 0; rank < times.size(); ++rank) {
    if (times[rank].compute > 0)
      found.speeds[static_cast<size_t>(left[rank])] =
          work_of(flags, present, static_cast<int>(rank)) / times[rank].compute;
  }
  found.source = fmt::format("measured in {} steps", so_far.measured_steps);
  if (std::ranges::none_of(found.speeds, [](double speed) { return speed > 0; })) {
    found = {before, "measured before the last loss"};
    if (before.empty()) {
      found.source = flags.slow_down.empty() ? "taken as equal, as no step was measured" : "by --slow-down";
      found.speeds.assign(static_cast<size_t>(first_size), 1);
      for (size_t rank = 0; rank < flags.slow_down.size(); ++rank)
        found.speeds[rank] = 1 / flags.slow_down[rank];
    }
  }
  fill_unknown(found.speeds);
  return found;
}

Result<training::ElasticLayout> layout_of_survivors(const TrainFlags& flags, const Layout& first,
                                                    const std::set<int>& lost, std::vector<double>& speeds,
                                                    Communicator& world) {
  HDT_RETURN_IF_ERROR(training::status_of([&] { world.broadcast(std::span<double>(speeds), 0); }));
  // Freed memory goes back to the kernel, so that it counts as available. A node's is for all of its ranks.
  malloc_trim(0);
  int on_node = 0;
  for (int rank = 0; rank < world.size(); ++rank)
    on_node += world.node_of(rank) == world.node_of(world.rank()) ? 1 : 0;
  const auto available = available_memory_bytes();
  const int32_t mine = available ? most_layers_in(static_cast<double>(*available) / on_node, flags)
                                 : training::kAnyNumberOfLayers;
  std::vector<int32_t> most_layers(static_cast<size_t>(world.size()));
  HDT_RETURN_IF_ERROR(training::status_of([&] { world.all_gather({&mine, 1}, most_layers); }));
  std::vector<training::RankAbility> ranks(static_cast<size_t>(first.world_size()));
  for (const int rank : lost) ranks[static_cast<size_t>(rank)].lost = true;
  size_t next = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].speed = speeds[rank];
    if (!ranks[rank].lost) ranks[rank].most_layers = most_layers[next++];
  }
  return training::elastic_layout(first, ranks);
}

TrainFlags flags_of_survivors(const TrainFlags& flags, const Layout& first, training::ElasticLayout& made) {
  TrainFlags next = flags;
  next.layout.world_size = made.layout.world_size();
  if (!flags.slow_down.empty()) next.slow_down = of_survivors(flags.slow_down, made.new_ranks);
  training::ShardOptions& shards = next.trainer.shards;
  if (!shards.weights.empty()) {
    shards.weights = of_survivors(shards.weights, made.new_ranks);
    if (!training::check_shard_options(made.layout, shards).is_ok()) {
      made.notes.emplace_back(
          "--optimizer-shard-weights has no weight above 0 for the owners of some layers any more: all "
          "shards are alike");
      shards.weights.clear();
    }
  }
  bool has_chunks = false;
  for (int index = 0; index < made.layout.num_replicas(); ++index)
    has_chunks = has_chunks || made.layout.replica(index).chunks > 1;
  if (next.trainer.schedule == training::ScheduleKind::kInterleaved && !has_chunks) {
    next.trainer.schedule = training::ScheduleKind::kOneForwardOneBackward;
    made.notes.emplace_back("the schedule is 1f1b, as no stage has several chunks any more");
  }
  if (flags.plan) {
    next.plan = plan_of_survivors(*flags.plan, first, made);
    next.plan->runtime.schedule = next.trainer.schedule;
    if (!shards.weights.empty()) return next;
    for (plan::Replica& replica : next.plan->replicas) {
      for (plan::Stage& stage : replica.stages)
        stage.optimizer_shard_weight = plan::Stage().optimizer_shard_weight;
    }
  }
  return next;
}

}  // namespace hdt::tools
