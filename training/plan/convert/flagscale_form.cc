// flagscale_form.cc: meshes as groups of stages: a mesh of pp stages and dp replicas is dp times pp ranks.
#include "training/plan/convert/flagscale_form.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "training/plan/describe/refuse.h"
#include "training/plan/output/plan_export.h"

namespace hdt::plan {
namespace {

constexpr const char* kMeshes = "--hetero-process-meshes";
constexpr const char* kLayerSplit = "--hetero-pipeline-layer-split";
constexpr const char* kDeviceTypes = "--hetero-device-types";
constexpr size_t kMostMeshes = 4096;
constexpr int64_t kMostStages = 65'536;  // also of all replicas together

const std::vector<std::string> kFlagScaleFlags = {kMeshes,
                                                  kLayerSplit,
                                                  kDeviceTypes,
                                                  "--enable-hetero",
                                                  "--hetero-current-device-type",
                                                  "--pipeline-model-parallel-size",
                                                  "--num-layers",
                                                  "--micro-batch-size",
                                                  "--global-batch-size",
                                                  "--use-tp-pp-dp-mapping",
                                                  "--recompute-granularity",
                                                  "--recompute-method",
                                                  "--recompute-num-layers",
                                                  kShardedOptimizer};

struct Mesh {
  int replicas = 1;
  int stages = 1;
};

// The meshes of "tp cp ep dp pp tp cp ep dp pp ...".
Result<std::vector<Mesh>> read_meshes(const FlagValues& values) {
  const Result<std::vector<int>> numbers = values.wholes(kMeshes);
  if (!numbers.is_ok()) return numbers.status();
  const std::vector<int>& all = numbers.value();
  if (all.empty()) return refuse(kMeshes, "none given");
  if (all.size() % 5 != 0 || all.size() / 5 > kMostMeshes)
    return refuse(kMeshes,
                  fmt::format("{} numbers, expected tp, cp, ep, dp and pp of each of at most {} meshes",
                              all.size(), kMostMeshes));
  std::vector<Mesh> meshes;
  int64_t stages = 0;
  for (size_t at = 0; at < all.size(); at += 5) {
    const size_t number = meshes.size() + 1;
    constexpr std::pair<const char*, const char*> kKinds[] = {
        {"tp", "tensor"}, {"cp", "context"}, {"ep", "expert"}};
    for (size_t i = 0; i < std::size(kKinds); ++i) {
      if (all[at + i] != 1)
        return refuse(kMeshes, fmt::format("mesh {} has {} {}, expected 1: HDT has no {} parallelism yet",
                                           number, kKinds[i].first, all[at + i], kKinds[i].second));
    }
    const Mesh mesh{all[at + 3], all[at + 4]};
    if (mesh.replicas < 1 || mesh.stages < 1)
      return refuse(kMeshes, fmt::format("mesh {} has dp {} and pp {}, expected at least 1 of each", number,
                                         mesh.replicas, mesh.stages));
    if (!meshes.empty() && mesh.replicas != meshes.front().replicas)
      return refuse(
          kMeshes,
          fmt::format("mesh {} has dp {}, mesh 1 has {}: FlagScale divides a micro-batch among the ranks of "
                      "the next mesh, and in HDT a stage of a replica is one rank; expected the same dp, or "
                      "replicas of their own for each kind of device (hdt-plan search)",
                      number, mesh.replicas, meshes.front().replicas));
    stages += mesh.stages;
    meshes.push_back(mesh);
  }
  if (stages * meshes.front().replicas > kMostStages)
    return refuse(
        kMeshes, fmt::format("{} ranks, expected at most {}", stages * meshes.front().replicas, kMostStages));
  return meshes;
}

// The layers of each stage, as read or an even split; --num-layers must agree.
Result<std::vector<int>> read_layers(const FlagValues& values, int stages) {
  Result<std::vector<int>> split = values.wholes(kLayerSplit);
  if (!split.is_ok()) return split;
  const auto number = values.whole("--num-layers");
  if (!number.is_ok()) return number.status();
  if (split.value().empty()) {
    if (!number.value())
      return refuse("--num-layers", fmt::format("required, as {} is not given", kLayerSplit));
    if (*number.value() < stages || *number.value() % stages != 0)
      return refuse("--num-layers", fmt::format("{} given, no multiple of the {} stages: give {}",
                                                *number.value(), stages, kLayerSplit));
    return std::vector<int>(static_cast<size_t>(stages), *number.value() / stages);
  }
  if (static_cast<int>(split.value().size()) != stages)
    return refuse(kLayerSplit,
                  fmt::format("{} numbers, the meshes have {} stages", split.value().size(), stages));
  return split;
}

Result<std::vector<std::string>> read_types(const FlagValues& values, size_t meshes) {
  Result<std::vector<std::string>> types = values.texts(kDeviceTypes);
  if (!types.is_ok()) return types;
  if (types.value().size() != meshes)
    return refuse(kDeviceTypes,
                  fmt::format("{} given for {} meshes, expected one for each", types.value().size(), meshes));
  for (const std::string& type : types.value()) {
    if (type.empty() || type.size() > 128 ||
        std::ranges::any_of(type, [](char c) { return c <= ' ' || c > '~'; }))
      return refuse(kDeviceTypes, "a name is empty, long or not plain");
  }
  return types;
}

// FlagScale numbers ranks by the first mesh of their type (RankMapper), so a type that comes back behind
// another one gets other ranks than its mesh.
std::optional<std::string> returning_type(const std::vector<std::string>& types) {
  for (size_t i = 1; i < types.size(); ++i) {
    const auto first = std::ranges::find(types, types[i]) - types.begin();
    const auto last_but = std::find_if(types.begin() + first, types.begin() + static_cast<std::ptrdiff_t>(i),
                                       [&](const std::string& type) { return type != types[i]; });
    if (last_but != types.begin() + static_cast<std::ptrdiff_t>(i)) return types[i];
  }
  return std::nullopt;
}

// The positions in the order of FlagScale's ranks: mesh after mesh, in a mesh stage by stage, or with
// --use-tp-pp-dp-mapping replica by replica.
std::vector<training::Position> rank_order(const std::vector<Mesh>& meshes, bool replica_by_replica) {
  std::vector<training::Position> positions;
  int first = 0;
  for (const Mesh& mesh : meshes) {
    for (int i = 0; i < mesh.stages * mesh.replicas; ++i) {
      positions.push_back(replica_by_replica
                              ? training::Position{i / mesh.stages, first + i % mesh.stages}
                              : training::Position{i % mesh.replicas, first + i / mesh.replicas});
    }
    first += mesh.stages;
  }
  return positions;
}

}  // namespace

Result<Warned<Strategy>> read_flagscale(const FlagValues& values, const FormContext& context) {
  // Sizes of groups are those of the meshes, whatever other flags say (pre_validate_args() of FlagScale).
  HDT_RETURN_IF_ERROR(refuse_divisions(values));
  for (const char* flag :
       {"--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank",
        "--pipeline-model-parallel-layout", "--hetero-pipeline-stages"}) {
    if (values.has(flag)) return refuse(flag, "FlagScale's meshes have none: expected another form");
  }
  const Result<std::vector<Mesh>> meshes = read_meshes(values);
  if (!meshes.is_ok()) return meshes.status();
  int stages = 0;
  for (const Mesh& mesh : meshes.value()) stages += mesh.stages;
  const Result<std::vector<int>> layers = read_layers(values, stages);
  if (!layers.is_ok()) return layers.status();
  const Result<std::vector<std::string>> types = read_types(values, meshes.value().size());
  if (!types.is_ok()) return types.status();
  // The rest is as with the other flags.
  training::LayoutFlags flags;
  flags.world_size = stages * meshes.value().front().replicas;
  const auto whole = [&values](const char* flag, std::optional<int>& value) -> Status {
    const auto read = values.whole(flag);
    if (read.is_ok()) value = read.value();
    return read.status();
  };
  std::optional<int> num_layers;
  HDT_RETURN_IF_ERROR(whole("--num-layers", num_layers));
  HDT_RETURN_IF_ERROR(whole("--pipeline-model-parallel-size", flags.pipeline_model_parallel_size));
  HDT_RETURN_IF_ERROR(whole("--micro-batch-size", flags.micro_batch_size));
  HDT_RETURN_IF_ERROR(whole("--global-batch-size", flags.global_batch_size));
  int64_t sum = 0;
  for (const int count : layers.value()) sum += count;
  if (num_layers.value_or(static_cast<int>(std::clamp<int64_t>(sum, 0, std::numeric_limits<int>::max()))) !=
      sum)
    return refuse(kLayerSplit, fmt::format("sums to {}, --num-layers is {}", sum, *num_layers));
  flags.num_layers = static_cast<int>(sum);
  // One group of stages: meshes only name kinds.
  flags.hetero_pipeline_stages = {{stages}};
  auto& group = flags.hetero_pipeline_stages.front();
  group.insert(group.end(), layers.value().begin(), layers.value().end());
  if (context.ranks && *context.ranks != flags.world_size)
    return refuse(kMeshes, fmt::format("{} ranks, --ranks is {}", flags.world_size, *context.ranks));
  Result<training::Layout> layout = training::make_layout(flags);
  if (!layout.is_ok()) return layout.status();

  Warned<Strategy> read{{layout.take()}};
  read.value.replica_by_replica = values.has("--use-tp-pp-dp-mapping");
  read.value.runtime.reduction = ReductionKind::kHdt;  // hdt-train is to run it
  std::vector<Worker> workers;
  for (size_t m = 0; m < meshes.value().size(); ++m)
    workers.insert(workers.end(), static_cast<size_t>(meshes.value()[m].stages),
                   {types.value()[m], types.value()[m]});
  read.value.workers.assign(static_cast<size_t>(read.value.layout.num_replicas()), workers);
  if (const auto type = returning_type(types.value()))
    read.warnings.push_back(
        fmt::format("FlagScale sorts ranks by the first mesh of their device type, so a later "
                    "mesh of {} is not on {}{}",
                    *type, *type, context.cluster ? ": the plan is as FlagScale has it" : ""));
  if (context.cluster)
    HDT_RETURN_IF_ERROR(place(read.value, rank_order(meshes.value(), read.value.replica_by_replica),
                              *context.cluster, types.value()));
  HDT_RETURN_IF_ERROR(take_recomputation(values, read));
  read.value.runtime.use_distributed_optimizer = values.has(kShardedOptimizer);
  if (auto rest = left_out(values, kFlagScaleFlags)) read.warnings.push_back(*rest);
  return read;
}

Result<Warned<std::string>> write_flagscale(const Strategy& strategy) {
  HDT_RETURN_IF_ERROR(check_alike(strategy, "FlagScale"));
  const training::Layout& layout = strategy.layout;
  const training::Replica& replica = layout.replica(0);
  if (replica.chunks > 1)
    return refuse(
        "replica 1",
        fmt::format("{} chunks on each stage: FlagScale's meshes have no virtual stages", replica.chunks));
  std::vector<std::string> types;
  std::vector<int> numbers;
  for (int s = 0; s < replica.stages(); ++s) {
    const std::string& kind = strategy.worker({0, s}).kind;
    for (int r = 1; r < layout.num_replicas(); ++r) {
      const std::string& other = strategy.worker({r, s}).kind;
      if (other != kind)
        return refuse(
            fmt::format("replica {}.stage {}", r + 1, s + 1),
            fmt::format("on '{}', that of replica 1 is on '{}': a mesh of FlagScale has one kind of device",
                        other, kind));
    }
    if (types.empty() || types.back() != kind) {
      types.push_back(kind);
      for (const int number : {1, 1, 1, layout.num_replicas(), 0}) numbers.push_back(number);
    }
    ++numbers.back();
  }
  if (const auto type = returning_type(types))
    return refuse("replica 1",
                  fmt::format("stages on '{}' come back behind another kind of device: FlagScale sorts "
                              "ranks by kind, so it would put them elsewhere",
                              *type));
  Warned<std::string> written;
  std::vector<std::string> quoted;
  for (const std::string& type : types) quoted.push_back(shell_word(type));
  written.value = fmt::format(
      "--enable-hetero {} {} {} {} {} {} --pipeline-model-parallel-size {} --num-layers {} "
      "--micro-batch-size {} "
      "--global-batch-size {}",
      kMeshes, fmt::join(numbers, " "), kLayerSplit, fmt::join(replica.stage_layers, " "), kDeviceTypes,
      fmt::join(quoted, " "), replica.stages(), layout.num_layers(), replica.micro_batch_size,
      layout.global_batch_size());
  if (strategy.replica_by_replica && types.size() == 1) written.value += " --use-tp-pp-dp-mapping";
  written.warnings.emplace_back(
      "FlagScale numbers ranks by the kinds of their devices: give --hetero-current-device-type on each "
      "node");
  written.value += memory_flags(strategy, written.warnings) + "\n";
  return written;
}

}  // namespace hdt::plan
