// form_parts.cc: the parts of the forms of flags that several have.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "training/plan/convert/megatron_form.h"
#include "training/plan/describe/refuse.h"
#include "training/plan/output/plan_export.h"

namespace hdt::plan {
namespace {

// Sizes of groups that HDT does not have.
constexpr std::pair<const char*, const char*> kGroupSizes[] = {
    {"--tensor-model-parallel-size", "HDT has no tensor parallelism yet"},
    {"--context-parallel-size", "HDT has no context parallelism yet"},
    {"--expert-model-parallel-size", "HDT has no expert parallelism yet"},
    {"--expert-tensor-parallel-size", "HDT has no expert parallelism yet"},
};
// Flags that change which layers a stage has, or how many samples a step takes.
constexpr std::pair<const char*, const char*> kDivisions[] = {
    {"--decoder-first-pipeline-num-layers", "name the split by --pipeline-model-parallel-layout"},
    {"--decoder-last-pipeline-num-layers", "name the split by --pipeline-model-parallel-layout"},
    {"--account-for-embedding-in-pipeline-split", "name the split by --pipeline-model-parallel-layout"},
    {"--account-for-loss-in-pipeline-split", "name the split by --pipeline-model-parallel-layout"},
    {"--pipeline-model-parallel-split-rank", "HDT has no encoder before the decoder"},
    {"--standalone-embedding-stage", "name the stage by --pipeline-model-parallel-layout 'E|...'"},
    {"--mtp-num-layers", "HDT has no multi-token prediction yet"},
    {"--hetero-mode", "of FlagScale 0.3 and earlier, which is not read"},
    {"--hetero-micro-batch-sizes", "of FlagScale 0.3 and earlier, which is not read"},
    {"--rampup-batch-size", "a step of HDT always has as many samples"},
};

}  // namespace

Status refuse_groups(const FlagValues& values) {
  for (const auto& [flag, reason] : kGroupSizes) {
    const Result<std::optional<int>> size = values.whole(flag);
    if (!size.is_ok()) return size.status();
    if (size.value().value_or(1) != 1)
      return refuse(flag, fmt::format("{} given, expected 1: {}", *size.value(), reason));
  }
  return Status::ok();
}

Status refuse_divisions(const FlagValues& values) {
  for (const auto& [flag, reason] : kDivisions) {
    if (values.has(flag)) return refuse(flag, reason);
  }
  return Status::ok();
}

std::optional<std::string> left_out(const FlagValues& values, const std::vector<std::string>& known) {
  // With the value 1 these say nothing, and other values were refused.
  const auto is_known = [&](const std::string& flag) {
    return std::ranges::find(known, flag) != known.end() ||
           std::ranges::any_of(kGroupSizes, [&](const auto& size) { return flag == size.first; });
  };
  std::vector<std::string> names;
  for (const std::string& flag : values.names()) {
    if (!is_known(flag)) names.push_back(flag.substr(0, 60));
  }
  if (names.empty()) return std::nullopt;
  const size_t shown = std::min<size_t>(names.size(), 8);
  return fmt::format("left out, as they say nothing of the layout: {}{}",
                     fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "");
}

namespace {

// Those of all chunks of the stage.
int layers_of_stage(const training::Replica& replica, int stage) {
  int layers = 0;
  for (int chunk = 0; chunk < replica.chunks; ++chunk)
    layers += replica.stage_layers[chunk * replica.stages() + stage];
  return layers;
}

}  // namespace

// The meaning is that of hdt-train (tools/hdt-train/recompute_flags.h).
Status take_recomputation(const FlagValues& values, Warned<Strategy>& strategy) {
  const auto granularity = values.text("--recompute-granularity");
  if (!granularity.is_ok()) return granularity.status();
  const auto method = values.text("--recompute-method");
  if (!method.is_ok()) return method.status();
  const auto number = values.whole("--recompute-num-layers");
  if (!number.is_ok()) return number.status();
  if (!granularity.value()) return Status::ok();
  if (values.has("--recompute-granularity-per-stage-micro-batch")) {
    strategy.warnings.emplace_back(
        "recomputation by stage and micro-batch is left out: HDT recomputes the same layers of every "
        "micro-batch");
    return Status::ok();
  }
  const std::string kind =
      granularity.value().value() + (method.value() ? " " + method.value().value() : std::string());
  const int layers = number.value().value_or(1);
  const bool attention_only =
      granularity.value() == kSelectiveGranularity && !method.value() && !number.value();
  if (!attention_only &&
      ((kind != "full block" && kind != "full uniform") || (kind == "full uniform" && layers != 1))) {
    strategy.warnings.push_back(
        fmt::format("--recompute-granularity {} with {} layers is left out: HDT recomputes whole layers, "
                    "each from its own input, or with selective and no method the attention of all layers",
                    kind, layers));
    return Status::ok();
  }
  const training::Layout& layout = strategy.value.layout;
  for (int r = 0; r < layout.num_replicas(); ++r) {
    const training::Replica& replica = layout.replica(r);
    for (int s = 0; s < replica.stages(); ++s) {
      const int of_stage = layers_of_stage(replica, s);
      Worker& worker = strategy.value.workers[static_cast<size_t>(r)][static_cast<size_t>(s)];
      worker.recomputed_layers =
          attention_only || kind == "full uniform" ? of_stage : std::clamp(layers, 0, of_stage);
      worker.attention_only = attention_only && of_stage > 0;
    }
  }
  return Status::ok();
}

std::string memory_flags(const Strategy& strategy, std::vector<std::string>& warnings) {
  std::vector<StageRecomputation> recomputed;
  bool has_weights = false;
  const training::Layout& layout = strategy.layout;
  for (int r = 0; r < layout.num_replicas(); ++r) {
    const training::Replica& replica = layout.replica(r);
    for (int s = 0; s < replica.stages(); ++s) {
      const Worker& worker = strategy.worker({r, s});
      recomputed.push_back({layers_of_stage(replica, s), worker.recomputed_layers, worker.attention_only});
      has_weights = has_weights || worker.optimizer_shard_weight != 1;
    }
  }
  const std::string recomputation = recomputation_flags(recomputed, warnings);
  return recomputation + optimizer_flags(strategy.runtime.use_distributed_optimizer, has_weights, warnings);
}

Status check_alike(const Strategy& strategy, const std::string& form) {
  const training::Layout& layout = strategy.layout;
  const training::Replica& first = layout.replica(0);
  for (int r = 1; r < layout.num_replicas(); ++r) {
    const training::Replica& other = layout.replica(r);
    const std::string field = fmt::format("replica {}", r + 1);
    if (other.stage_layers != first.stage_layers || other.chunks != first.chunks)
      return refuse(field,
                    fmt::format("split into {} layers, replica 1 into {}: {} has one split for all replicas",
                                split_text(other), split_text(first), form));
    if (other.micro_batch_size != first.micro_batch_size ||
        other.num_micro_batches != first.num_micro_batches)
      return refuse(field,
                    fmt::format("{} micro-batches of {} samples, replica 1 has {} of {}: {} has the same for "
                                "all replicas",
                                other.num_micro_batches, other.micro_batch_size, first.num_micro_batches,
                                first.micro_batch_size, form));
  }
  return Status::ok();
}

}  // namespace hdt::plan
