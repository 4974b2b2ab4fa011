// megatron_form.cc: reads and writes the flags. LayoutFlags is in the middle both ways, so make_layout()
// checks what is read, and what is warned of is what is written.
#include "training/plan/convert/megatron_form.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>

#include "training/engine/layout_string.h"
#include "training/plan/describe/refuse.h"
#include "training/plan/output/plan_export.h"

namespace hdt::plan {
namespace {

constexpr const char* kLayout = "--pipeline-model-parallel-layout";
constexpr const char* kStages = "--hetero-pipeline-stages";
constexpr const char* kSizes = "--micro-batch-size-per-dp";
constexpr const char* kCounts = "--num-micro-batches-per-dp";
constexpr const char* kMapping = "--use-tp-pp-dp-mapping";

// A foreign text must not take all memory: as many ranks as a cluster has nodes, and their virtual stages.
constexpr int64_t kMostRanks = 65'536;
constexpr int64_t kMostVirtualStages = 1'000'000;

const std::vector<std::string>& known_flags() {
  static const std::vector<std::string> known = {kLayout,
                                                 kStages,
                                                 kSizes,
                                                 kCounts,
                                                 kMapping,
                                                 "--pipeline-model-parallel-size",
                                                 "--num-layers",
                                                 "--num-virtual-stages-per-pipeline-rank",
                                                 "--num-layers-per-virtual-pipeline-stage",
                                                 "--micro-batch-size",
                                                 "--global-batch-size",
                                                 "--recompute-granularity",
                                                 "--recompute-method",
                                                 "--recompute-num-layers",
                                                 kShardedOptimizer};
  return known;
}

Status wrong(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

// Assigns a value that was read, or returns its error.
template <typename Read, typename Value>
Status take(Read&& read, Value& value) {
  if (!read.is_ok()) return read.status();
  value = read.take();
  return Status::ok();
}

Result<training::LayoutFlags> layout_flags(const FlagValues& values) {
  training::LayoutFlags flags;
  std::optional<int> layers;
  HDT_RETURN_IF_ERROR(take(values.whole("--num-layers"), layers));
  HDT_RETURN_IF_ERROR(
      take(values.whole("--pipeline-model-parallel-size"), flags.pipeline_model_parallel_size));
  HDT_RETURN_IF_ERROR(take(values.all_wholes(kStages), flags.hetero_pipeline_stages));
  HDT_RETURN_IF_ERROR(
      take(values.wholes("--num-virtual-stages-per-pipeline-rank"), flags.virtual_stages_per_rank));
  HDT_RETURN_IF_ERROR(
      take(values.whole("--num-layers-per-virtual-pipeline-stage"), flags.layers_per_virtual_stage));
  HDT_RETURN_IF_ERROR(take(values.text(kLayout), flags.pipeline_model_parallel_layout));
  HDT_RETURN_IF_ERROR(take(values.whole("--micro-batch-size"), flags.micro_batch_size));
  HDT_RETURN_IF_ERROR(take(values.wholes(kSizes), flags.micro_batch_size_per_dp));
  HDT_RETURN_IF_ERROR(take(values.wholes(kCounts), flags.num_micro_batches_per_dp));
  HDT_RETURN_IF_ERROR(take(values.whole("--global-batch-size"), flags.global_batch_size));
  flags.use_tp_pp_dp_mapping = values.has(kMapping);
  flags.num_layers = layers.value_or(0);
  return flags;
}

// How many chunks the entry of --hetero-pipeline-stages with that index has.
int64_t chunks_of(const training::LayoutFlags& flags, size_t index) {
  const std::vector<int>& chunks = flags.virtual_stages_per_rank;
  if (chunks.empty()) return 1;
  return std::max(chunks[std::min(index, chunks.size() - 1)], 1);
}

// By stage: the group of "n layers ..." that it is in. make_layout() checks the numbers; wrong ones make
// something wrong, but nothing large.
std::vector<int> groups_of(const std::vector<int>& values, int64_t chunks) {
  std::vector<int> groups;
  int group = 0;
  const auto size = static_cast<int64_t>(values.size());
  for (int64_t at = 0; at < size; ++group) {
    const int64_t layers = std::clamp<int64_t>(values[static_cast<size_t>(at)] * chunks, 0, size - at - 1);
    groups.insert(groups.end(), static_cast<size_t>(layers / chunks), group);
    at += layers + 1;
  }
  return groups;
}

// The layers of all groups of "n layers ...".
int64_t layers_of(const std::vector<int>& values, int64_t chunks) {
  int64_t sum = 0;
  const auto size = static_cast<int64_t>(values.size());
  for (int64_t at = 0; at < size;) {
    const int64_t layers = std::clamp<int64_t>(values[static_cast<size_t>(at)] * chunks, 0, size - at - 1);
    for (int64_t i = 1; i <= layers; ++i) sum += values[static_cast<size_t>(at + i)];
    at += layers + 1;
  }
  return sum;
}

// The n of "n0 value0 n1 value1 ...".
int64_t replicas_of(const std::vector<int>& values) {
  int64_t sum = 0;
  for (size_t i = 0; i < values.size(); i += 2) sum += std::max(values[i], 0);
  return sum;
}

// What the split says where --num-layers is not given, as a plan's file does not say it either.
Status take_layers(training::LayoutFlags& flags) {
  if (flags.num_layers != 0) return Status::ok();
  int64_t layers = 0;
  if (flags.pipeline_model_parallel_layout) {
    const auto split = training::parse_layout_string(*flags.pipeline_model_parallel_layout);
    if (!split.is_ok()) return wrong(fmt::format("{}: {}", kLayout, split.status().message()));
    for (const int count : split.value()) layers += count;
  } else if (!flags.hetero_pipeline_stages.empty()) {
    layers = layers_of(flags.hetero_pipeline_stages.front(), chunks_of(flags, 0));
  } else {
    return wrong(fmt::format("--num-layers is required, as neither {} nor {} is given", kStages, kLayout));
  }
  flags.num_layers = static_cast<int>(std::clamp<int64_t>(layers, 0, std::numeric_limits<int>::max()));
  return Status::ok();
}

// Stages of a replica, and its virtual stages, if all replicas have the same split.
Result<std::pair<int64_t, int64_t>> common_split(const training::LayoutFlags& flags) {
  if (flags.pipeline_model_parallel_layout) {
    const auto split = training::parse_layout_string(*flags.pipeline_model_parallel_layout);
    if (!split.is_ok()) return wrong(fmt::format("{}: {}", kLayout, split.status().message()));
    const auto stages = static_cast<int64_t>(split.value().size());
    return std::pair<int64_t, int64_t>(flags.pipeline_model_parallel_size.value_or(static_cast<int>(stages)),
                                       stages);
  }
  const int64_t chunks = chunks_of(flags, 0);
  if (!flags.hetero_pipeline_stages.empty()) {
    const auto stages = static_cast<int64_t>(groups_of(flags.hetero_pipeline_stages.front(), chunks).size());
    return std::pair<int64_t, int64_t>(stages, stages * chunks);
  }
  const int64_t stages = flags.pipeline_model_parallel_size.value_or(1);
  const int64_t most_chunks = flags.layers_per_virtual_stage
                                  ? std::max<int64_t>(flags.num_layers / std::max(stages, int64_t{1}), 1)
                                  : chunks;
  return std::pair<int64_t, int64_t>(stages, stages * most_chunks);
}

// The ranks of the job: those of all splits, or of so many replicas as the other flags say.
Result<int> ranks_of(const training::LayoutFlags& flags, const FormContext& context) {
  int64_t ranks = 0;
  int64_t virtual_stages = 0;
  if (flags.hetero_pipeline_stages.size() > 1) {
    for (size_t i = 0; i < flags.hetero_pipeline_stages.size(); ++i)
      ranks += static_cast<int64_t>(groups_of(flags.hetero_pipeline_stages[i], chunks_of(flags, i)).size());
    // Each has a number among the values of the flag.
    virtual_stages = ranks;
  } else {
    const Result<std::pair<int64_t, int64_t>> split = common_split(flags);
    if (!split.is_ok()) return split.status();
    const auto [stages, of_replica] = split.value();
    if (stages < 1) return 1;  // make_layout() says which number is wrong
    int64_t replicas =
        std::max(replicas_of(flags.micro_batch_size_per_dp), replicas_of(flags.num_micro_batches_per_dp));
    if (replicas == 0 && context.ranks) {
      if (*context.ranks % stages != 0)
        return wrong(
            fmt::format("--ranks {}: no multiple of the {} stages of a replica", *context.ranks, stages));
      replicas = *context.ranks / stages;
    }
    if (replicas == 0 && context.cluster) {
      for (const Node& node : context.cluster->nodes) ranks += node.devices;
      replicas = ranks / stages;
    }
    if (replicas == 0)
      return wrong(
          "the number of replicas is not given: Megatron takes it from the ranks of the job; give --ranks or "
          "--cluster, of at least one replica");
    ranks = replicas * stages;
    virtual_stages = replicas * of_replica;
  }
  if (context.ranks && ranks != *context.ranks)
    return wrong(fmt::format("--ranks {}: the layout has {} stages in all", *context.ranks, ranks));
  if (ranks > kMostRanks || virtual_stages > kMostVirtualStages)
    return wrong(fmt::format("{} ranks with {} virtual stages in all, expected at most {} and {}", ranks,
                             virtual_stages, kMostRanks, kMostVirtualStages));
  return static_cast<int>(ranks);
}

// Names for what flags do not name: a kind of device for each group of stages, or of replicas.
void name_kinds(const training::LayoutFlags& flags, Strategy& strategy) {
  const training::Layout& layout = strategy.layout;
  const size_t splits = flags.hetero_pipeline_stages.size();
  // By replica: the group that it is in, of either flag.
  std::vector<int> replica_group(static_cast<size_t>(layout.num_replicas()), 0);
  for (int r = 1; r < layout.num_replicas(); ++r) {
    const training::Replica& before = layout.replica(r - 1);
    const training::Replica& replica = layout.replica(r);
    const bool same = splits <= 1 && before.micro_batch_size == replica.micro_batch_size &&
                      before.num_micro_batches == replica.num_micro_batches;
    replica_group[static_cast<size_t>(r)] = replica_group[static_cast<size_t>(r - 1)] + (same ? 0 : 1);
  }
  for (int r = 0; r < layout.num_replicas(); ++r) {
    std::vector<int> groups(static_cast<size_t>(layout.replica(r).stages()), 0);
    const size_t split = splits <= 1 ? 0 : static_cast<size_t>(r);
    if (splits > 0) groups = groups_of(flags.hetero_pipeline_stages[split], chunks_of(flags, split));
    auto& workers = strategy.workers.emplace_back();
    for (const int group : groups) {
      const int of_replica = replica_group[static_cast<size_t>(r)];
      std::string name = fmt::format("kind-{}", (replica_group.back() > 0 ? of_replica : group) + 1);
      if (replica_group.back() > 0 && splits > 0) name += fmt::format("-{}", group + 1);
      workers.push_back({name, name});
    }
  }
}

Result<Warned<Strategy>> read_flags(training::LayoutFlags flags, const FlagValues& values,
                                    const FormContext& context) {
  HDT_RETURN_IF_ERROR(refuse_groups(values));
  HDT_RETURN_IF_ERROR(refuse_divisions(values));
  for (const char* flag : {"--hetero-process-meshes", "--hetero-pipeline-layer-split"}) {
    if (values.has(flag)) return refuse(flag, "of FlagScale: expected --from flagscale");
  }
  HDT_RETURN_IF_ERROR(take_layers(flags));
  const Result<int> ranks = ranks_of(flags, context);
  if (!ranks.is_ok()) return ranks.status();
  flags.world_size = ranks.value();
  Result<training::Layout> layout = training::make_layout(flags);
  if (!layout.is_ok()) return layout.status();
  Warned<Strategy> read{{layout.take()}};
  read.value.replica_by_replica = flags.use_tp_pp_dp_mapping;
  read.value.runtime.reduction = ReductionKind::kHdt;  // hdt-train is to run it
  name_kinds(flags, read.value);
  if (context.cluster)
    HDT_RETURN_IF_ERROR(place(read.value, positions_by_rank(read.value.layout), *context.cluster));
  if (context.cluster) {
    int64_t devices = 0;
    for (const Node& node : context.cluster->nodes) devices += node.devices;
    if (devices > flags.world_size)
      read.warnings.push_back(fmt::format("{} of the {} devices of the cluster have no stage",
                                          devices - flags.world_size, devices));
  }
  HDT_RETURN_IF_ERROR(take_recomputation(values, read));
  read.value.runtime.use_distributed_optimizer = values.has(kShardedOptimizer);
  if (auto rest = left_out(values, known_flags())) read.warnings.push_back(*rest);
  return read;
}

// "n0 value0 n1 value1 ..." of the same runs of replicas for both numbers, as SynerFuse wants them.
void set_per_replica(const training::Layout& layout, training::LayoutFlags& flags) {
  for (int r = 0; r < layout.num_replicas(); ++r) {
    const training::Replica& replica = layout.replica(r);
    if (r > 0 && layout.replica(r - 1).micro_batch_size == replica.micro_batch_size &&
        layout.replica(r - 1).num_micro_batches == replica.num_micro_batches) {
      ++*(flags.micro_batch_size_per_dp.end() - 2);
      ++*(flags.num_micro_batches_per_dp.end() - 2);
      continue;
    }
    for (const int value : {1, replica.micro_batch_size}) flags.micro_batch_size_per_dp.push_back(value);
    for (const int value : {1, replica.num_micro_batches}) flags.num_micro_batches_per_dp.push_back(value);
  }
}

// "n layers ...": a group for each run of stages on one kind of device.
std::vector<int> stages_by_kind(const Strategy& strategy, int replica_index) {
  const training::Replica& replica = strategy.layout.replica(replica_index);
  std::vector<int> values;
  size_t group = 0;  // where the number of its stages is
  for (int s = 0; s < replica.stages(); ++s) {
    if (s == 0 || strategy.worker({replica_index, s}).kind != strategy.worker({replica_index, s - 1}).kind) {
      group = values.size();
      values.push_back(0);
    }
    ++values[group];
    for (int c = 0; c < replica.chunks; ++c) values.push_back(replica.stage_layers[c * replica.stages() + s]);
  }
  return values;
}

bool is_even(const training::Replica& replica) {
  return std::ranges::all_of(replica.stage_layers,
                             [&](int layers) { return layers == replica.stage_layers.front(); });
}

// The flags of a strategy, with as few of the forks as it needs.
training::LayoutFlags fork_flags(const Strategy& strategy) {
  const training::Layout& layout = strategy.layout;
  const training::Replica& first = layout.replica(0);
  training::LayoutFlags flags;
  flags.world_size = layout.world_size();
  flags.num_layers = layout.num_layers();
  flags.global_batch_size = static_cast<int>(layout.global_batch_size());
  flags.use_tp_pp_dp_mapping = strategy.replica_by_replica;
  bool same_split = true;
  bool same_batches = true;
  bool same_groups = true;
  std::set<std::string> kinds;
  for (int r = 0; r < layout.num_replicas(); ++r) {
    const training::Replica& replica = layout.replica(r);
    same_split = same_split && replica.stage_layers == first.stage_layers && replica.chunks == first.chunks;
    same_batches = same_batches && replica.samples() == first.samples() &&
                   replica.micro_batch_size == first.micro_batch_size;
    for (int s = 0; s < replica.stages(); ++s) kinds.insert(strategy.worker({r, s}).kind);
    same_groups = same_groups && same_split && stages_by_kind(strategy, r) == stages_by_kind(strategy, 0);
  }
  if (same_batches) {
    flags.micro_batch_size = first.micro_batch_size;
  } else {
    set_per_replica(layout, flags);
  }
  if (same_split) flags.pipeline_model_parallel_size = first.stages();
  // An even split needs no list, which SynerFuse refuses beside other micro-batches.
  if (same_split && is_even(first) && (!same_batches || kinds.size() == 1 || !same_groups)) {
    if (first.chunks > 1) flags.layers_per_virtual_stage = first.stage_layers.front();
    return flags;
  }
  for (int r = 0; r < (same_split && same_groups ? 1 : layout.num_replicas()); ++r) {
    flags.hetero_pipeline_stages.push_back(stages_by_kind(strategy, r));
    flags.virtual_stages_per_rank.push_back(layout.replica(r).chunks);
  }
  if (std::ranges::all_of(flags.virtual_stages_per_rank, [](int chunks) { return chunks == 1; }))
    flags.virtual_stages_per_rank.clear();
  return flags;
}

std::string flags_text(const training::LayoutFlags& flags) {
  std::string text = fmt::format("--num-layers {}", flags.num_layers);
  const auto add = [&text](const char* flag, const auto& value) {
    if (value) text += fmt::format(" {} {}", flag, *value);
  };
  const auto add_list = [&text](const char* flag, const std::vector<int>& values) {
    if (!values.empty()) text += fmt::format(" {} {}", flag, fmt::join(values, " "));
  };
  add("--pipeline-model-parallel-size", flags.pipeline_model_parallel_size);
  if (flags.pipeline_model_parallel_layout)
    text += fmt::format(" {} {}", kLayout, shell_word(*flags.pipeline_model_parallel_layout));
  for (const std::vector<int>& values : flags.hetero_pipeline_stages) add_list(kStages, values);
  add_list("--num-virtual-stages-per-pipeline-rank", flags.virtual_stages_per_rank);
  add("--num-layers-per-virtual-pipeline-stage", flags.layers_per_virtual_stage);
  add("--micro-batch-size", flags.micro_batch_size);
  add_list(kSizes, flags.micro_batch_size_per_dp);
  add_list(kCounts, flags.num_micro_batches_per_dp);
  add("--global-batch-size", flags.global_batch_size);
  if (flags.use_tp_pp_dp_mapping) text += fmt::format(" {}", kMapping);
  return text;
}

// Megatron takes the number of replicas from the job.
void warn_of_ranks(const training::LayoutFlags& flags, std::vector<std::string>& warnings) {
  if (flags.micro_batch_size_per_dp.empty() && flags.hetero_pipeline_stages.size() < 2)
    warnings.push_back(fmt::format("the flags do not say the number of replicas: start {} {}",
                                   flags.world_size, flags.world_size == 1 ? "rank" : "ranks"));
}

Status check_batch(const Strategy& strategy) {
  if (strategy.layout.global_batch_size() <= std::numeric_limits<int>::max()) return Status::ok();
  return refuse("replica", fmt::format("{} samples a step, more than --global-batch-size can say",
                                       strategy.layout.global_batch_size()));
}

}  // namespace

Result<Warned<Strategy>> read_fork(const FlagValues& values, const FormContext& context) {
  if (values.has(kLayout))
    return refuse(kLayout,
                  "Megatron's; the forks name stages by --hetero-pipeline-stages: expected --from "
                  "megatron-layout");
  Result<training::LayoutFlags> flags = layout_flags(values);
  if (!flags.is_ok()) return flags.status();
  Result<Warned<Strategy>> read = read_flags(flags.value(), values, context);
  if (!read.is_ok()) return read;
  auto warnings = fork_warnings(flags.value(), read.value().value.layout);
  read.value().warnings.insert(read.value().warnings.begin(), warnings.begin(), warnings.end());
  return read;
}

Result<Warned<Strategy>> read_megatron_layout(const FlagValues& values, const FormContext& context) {
  for (const char* flag : {kStages, kSizes, kCounts}) {
    if (values.has(flag)) return refuse(flag, "Megatron has none: expected --from megatron-fork");
  }
  if (!values.has(kLayout)) return refuse(kLayout, "none given");
  Result<training::LayoutFlags> flags = layout_flags(values);
  if (!flags.is_ok()) return flags.status();
  return read_flags(flags.take(), values, context);
}

Result<Warned<std::string>> write_fork(const Strategy& strategy) {
  HDT_RETURN_IF_ERROR(check_batch(strategy));
  const training::LayoutFlags flags = fork_flags(strategy);
  Warned<std::string> written{flags_text(flags), fork_warnings(flags, strategy.layout)};
  warn_of_ranks(flags, written.warnings);
  written.value += memory_flags(strategy, written.warnings) + "\n";
  return written;
}

Result<Warned<std::string>> write_megatron_layout(const Strategy& strategy) {
  HDT_RETURN_IF_ERROR(check_alike(strategy, kLayout));
  HDT_RETURN_IF_ERROR(check_batch(strategy));
  const training::Replica& replica = strategy.layout.replica(0);
  training::LayoutFlags flags;
  flags.world_size = strategy.layout.world_size();
  flags.num_layers = strategy.layout.num_layers();
  flags.pipeline_model_parallel_size = replica.stages();
  flags.pipeline_model_parallel_layout = training::layout_string(replica.stage_layers);
  flags.micro_batch_size = replica.micro_batch_size;
  flags.global_batch_size = static_cast<int>(strategy.layout.global_batch_size());
  flags.use_tp_pp_dp_mapping = strategy.replica_by_replica;
  Warned<std::string> written{flags_text(flags)};
  warn_of_ranks(flags, written.warnings);
  written.value += memory_flags(strategy, written.warnings) + "\n";
  return written;
}

}  // namespace hdt::plan
