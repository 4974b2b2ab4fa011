// plan_layout.cc: --plan: the plan's values take the place of the flags of layout and buckets.
#include "tools/hdt-train/plan_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "base/host_name.h"
#include "tools/hdt-train/agreement.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/output/misplaced_ranks.h"
#include "training/plan/output/plan_export.h"

namespace hdt::tools {

namespace {

// Sharded optimizer states: what the plan says, or what the flags say beside a plan that leaves it open. The
// plan has it then, too, since predictions of the run are made from it.
Status take_shards(plan::Plan& plan, TrainFlags& flags) {
  training::ShardOptions& shards = flags.trainer.shards;
  shards.sharded = shards.sharded || plan.runtime.use_distributed_optimizer;
  plan.runtime.use_distributed_optimizer = shards.sharded;
  const bool has_weights = plan::has_shard_weights(plan);
  if (has_weights && !shards.weights.empty())
    return {Code::kInvalidArgument,
            "--optimizer-shard-weights and --plan exclude each other: the plan says it"};
  // A plan numbers its workers as ranks are.
  size_t rank = 0;
  for (plan::Replica& replica : plan.replicas) {
    for (plan::Stage& stage : replica.stages) {
      if (has_weights) shards.weights.push_back(stage.optimizer_shard_weight);
      // Another number of weights than ranks is refused later, with what it should be.
      if (!has_weights && rank < shards.weights.size()) stage.optimizer_shard_weight = shards.weights[rank];
      ++rank;
    }
  }
  return Status::ok();
}

}  // namespace

Status take_plan(const CLI::App& app, TrainFlags& flags) {
  const std::string& path = flags.plan_path;
  Result<plan::Plan> read = plan::read_plan(path);
  if (!read.is_ok()) return read.status();
  plan::Plan plan = read.take();
  const Status runs = plan::check_engine_runs(plan);
  if (!runs.is_ok()) return {runs.code(), path + ": " + runs.message()};
  // Flags that the plan replaces. Giving both is refused even if they agree, which is simpler to
  // explain.
  for (const char* flag :
       {"--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--hetero-pipeline-stages",
        "--num-virtual-stages-per-pipeline-rank", "--num-layers-per-virtual-pipeline-stage",
        "--pipeline-model-parallel-layout", "--use-tp-pp-dp-mapping", "--micro-batch-size",
        "--micro-batch-size-per-dp", "--num-micro-batches-per-dp", "--ddp-bucket-size", "--schedule",
        "--recompute-granularity", "--recompute-method", "--recompute-num-layers"}) {
    if (app.get_option(flag)->count() > 0)
      return {Code::kInvalidArgument,
              fmt::format("{} and --plan exclude each other: the plan says it", flag)};
  }
  // These two may be given beside the plan, as scripts do, if they say the same.
  const int layers = plan.layout().num_layers();
  if (app.get_option("--num-layers")->count() > 0 && flags.layout.num_layers != layers)
    return {Code::kInvalidArgument,
            fmt::format("--num-layers {}: --plan {} has {} layers", flags.layout.num_layers, path, layers)};
  const int64_t samples = plan.global_batch_size();
  if (flags.layout.global_batch_size.value_or(samples) != samples)
    return {Code::kInvalidArgument, fmt::format("--global-batch-size {}: --plan {} has {} samples a step",
                                                *flags.layout.global_batch_size, path, samples)};
  flags.layout.num_layers = layers;
  // A plan numbers its workers replica by replica.
  flags.layout.use_tp_pp_dp_mapping = true;
  flags.trainer.schedule = plan.runtime.schedule;
  HDT_RETURN_IF_ERROR(take_shards(plan, flags));
  flags.plan = std::move(plan);
  return Status::ok();
}

size_t bucket_elements(const plan::Plan& plan, training::NumberType gradients) {
  return std::max<size_t>(1, static_cast<size_t>(plan.runtime.bucket_bytes) / training::bytes_of(gradients));
}

namespace {

// Every replica can be run with the schedule. Interleaved must have something to interleave.
Status check_schedule(const TrainFlags& flags, const training::Layout& layout) {
  bool any_chunks = false;
  for (int i = 0; i < layout.num_replicas(); ++i) {
    const training::Replica& replica = layout.replica(i);
    any_chunks = any_chunks || replica.chunks > 1;
    const Status runs = training::check_chunks(flags.trainer.schedule, replica.stages(),
                                               replica.num_micro_batches, replica.chunks);
    if (!runs.is_ok()) return {runs.code(), fmt::format("replica {}: {}", i, runs.message())};
  }
  if (flags.trainer.schedule != training::ScheduleKind::kInterleaved || any_chunks) return Status::ok();
  return {Code::kInvalidArgument,
          "--schedule interleaved: every stage has one chunk of the model, expected several: give "
          "--num-virtual-stages-per-pipeline-rank 2, or use --schedule 1f1b"};
}

// By the numbers of its layers.
Result<training::Layout> make_layout_of_model(const TrainFlags& flags) {
  if (!flags.plan) {
    Result<training::Layout> made = training::make_layout(flags.layout);
    if (made.is_ok()) HDT_RETURN_IF_ERROR(check_schedule(flags, made.value()));
    return made;
  }
  training::Layout layout = flags.plan->layout();
  if (layout.world_size() == flags.layout.world_size) return layout;
  return Status(
      Code::kInvalidArgument,
      fmt::format("--plan {}: has {} stages in all, but the job has {} ranks: start one rank a stage "
                  "(hdt-plan export prints the command)",
                  flags.plan_path, layout.world_size(), flags.layout.world_size));
}

}  // namespace

Result<training::Layout> make_run_layout(const TrainFlags& flags) {
  Result<training::Layout> made = make_layout_of_model(flags);
  if (!made.is_ok() || !flags.shape.tied_head) return made;
  return made.value().with_tied_unit();
}

namespace {

const plan::Stage& stage_of_plan(const TrainFlags& flags, training::Position position) {
  return flags.plan->replicas[position.replica].stages[position.stage];
}

}  // namespace

// The names of hosts are asked for without a plan, too: a rank that had no --plan by mistake would leave the
// others waiting. check_same_run() finds that later.
Status warn_of_misplaced_ranks(const TrainFlags& flags, Communicator& world) {
  const Result<std::vector<std::string>> hosts = gather_texts(host_name(), world);
  if (!hosts.is_ok()) return hosts.status();
  if (world.rank() != 0 || !flags.plan) return Status::ok();
  std::vector<plan::RankPlace> places;
  for (const std::string& host : hosts.value())
    places.push_back({world.node_of(static_cast<int>(places.size())), host});
  const std::string misplaced = plan::misplaced_ranks(*flags.plan, places);
  if (misplaced.empty()) return Status::ok();
  fmt::print(stderr,
             "hdt-train: warning: --plan {}: {}; predictions of the plan do not hold for that. hdt-plan "
             "export prints the command that starts each rank on its stage's node\n",
             flags.plan_path, misplaced);
  return Status::ok();
}

int recomputed_layers(const TrainFlags& flags, const training::Layout& layout, training::Position position) {
  if (flags.plan) {
    const plan::Stage& stage = stage_of_plan(flags, position);
    return stage.attention_only ? 0 : stage.recomputed_of(position.chunk);
  }
  // The first layers of the stage, chunk after chunk.
  const training::Replica& replica = layout.replica(position.replica);
  int before = 0;
  for (int chunk = 0; chunk < position.chunk; ++chunk)
    before += replica.stage_layers[chunk * replica.stages() + position.stage];
  return std::clamp(flags.recomputed_layers - before, 0,
                    replica.stage_layers[position.chunk * replica.stages() + position.stage]);
}

int recomputed_attentions(const TrainFlags& flags, const training::Layout& layout,
                          training::Position position) {
  if (flags.plan) {
    const plan::Stage& stage = stage_of_plan(flags, position);
    return stage.attention_only ? stage.recomputed_of(position.chunk) : 0;
  }
  const training::Replica& replica = layout.replica(position.replica);
  return flags.recompute_attention ? replica.stage_layers[position.chunk * replica.stages() + position.stage]
                                   : 0;
}

}  // namespace hdt::tools
