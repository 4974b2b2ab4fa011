// equal_split.cc: tries every degree, micro-batch size and number of stages.
#include "training/plan/search/equal_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "training/plan/describe/group_classes.h"
#include "training/plan/predict/predictor.h"
#include "training/plan/search/placement.h"
#include "training/plan/search/replica_kind.h"
#include "training/plan/search/shape_search.h"

namespace hdt::plan {
namespace {

// Longer pipelines spend more time on filling than their shorter stages save.
constexpr int kMostEqualStages = 64;

// The plan with as many replicas of `stages` stages as there are devices for, and as share the batch
// equally. Nothing if there is no such plan. `variant` is (tensor-parallel degree, micro-batch size).
std::optional<Plan> equal_plan(const PredictionInputs& inputs, const SearchOptions& options,
                               const ClassMaker& maker, std::pair<int, int> variant, int stages) {
  const auto [degree, size] = variant;
  // The workers of the cluster by kind, in the order in which stages take them. A replica may begin in
  // one kind and end in another.
  std::vector<int> row;
  for (int kind = 0; kind < static_cast<int>(maker.kinds().size()); ++kind) {
    if (maker.profiled(kind, variant)) row.insert(row.end(), maker.workers(kind, degree), kind);
  }
  int64_t replicas = std::min<int64_t>(static_cast<int64_t>(row.size()) / stages, options.most_replicas);
  // The most replicas that share the batch without a rest.
  while (replicas > 0 && options.global_batch_size % (replicas * size) != 0) --replicas;
  if (replicas == 0) return std::nullopt;
  const auto count = static_cast<int>(options.global_batch_size / (replicas * size));
  const int layers = inputs.model.num_layers();
  Plan plan;
  plan.runtime = options.runtime;
  Placement placement(inputs.cluster);
  // Stages take the workers of the row one after the other.
  for (size_t worker = 0; static_cast<int64_t>(plan.replicas.size()) < replicas;) {
    Replica replica{size, count, {}};
    ReplicaKind made;
    made.tensor_parallel = degree;
    made.micro_batch_size = size;
    for (int stage = 0; stage < stages; ++stage, ++worker) {
      const auto node = placement.take(row[worker], degree);
      if (!node) return std::nullopt;
      made.kinds.push_back(row[worker]);
      replica.stages.push_back({layers / stages + (stage < layers % stages ? 1 : 0), *node, degree});
    }
    // Recompute as few layers as fit. A stage that does not fit either way stays as it is; the check of
    // memory refuses the plan then.
    for (int stage = 0, first = 0; stage < stages; first += replica.stages[stage++].layers) {
      const auto fitted = maker.fitted(made, stage, first, replica.stages[stage].layers, count);
      if (!fitted) continue;
      replica.stages[stage].recomputed_layers = fitted->recomputed_layers;
      replica.stages[stage].attention_only = fitted->attention_only;
    }
    plan.replicas.push_back(std::move(replica));
  }
  return plan;
}

}  // namespace

Result<SearchResult> search_equal_split(const PredictionInputs& all_inputs, const SearchOptions& options) {
  // With sharded states each is tried, and the faster one is taken.
  if (options.shard_optimizer) {
    SearchOptions one = options;
    one.shard_optimizer = false;
    Result<SearchResult> whole = search_equal_split(all_inputs, one);
    one.runtime.use_distributed_optimizer = true;
    Result<SearchResult> sharded = search_equal_split(all_inputs, one);
    if (!sharded.is_ok()) return whole.is_ok() ? std::move(whole) : std::move(sharded);
    const bool keep_whole = whole.is_ok() && whole.value().step_seconds <= sharded.value().step_seconds;
    SearchResult best = keep_whole ? whole.take() : sharded.take();
    if (!keep_whole && whole.is_ok()) best.predictions += whole.value().predictions;
    if (keep_whole) best.predictions += sharded.value().predictions;
    return best;
  }
  const Profile profile = profile_for(options.engine, all_inputs.profile);
  const PredictionInputs inputs{all_inputs.cluster, all_inputs.model, profile, all_inputs.calibration};
  HDT_RETURN_IF_ERROR(check_profile(inputs.profile, inputs.model));
  HDT_RETURN_IF_ERROR(check_recompute_choice(inputs, options.recompute));
  const ClassMaker maker(inputs, options.runtime.schedule, options.recompute);
  SearchResult best;
  best.step_seconds = std::numeric_limits<double>::infinity();
  SearchState state;  // for what is left out
  // For the message when nothing fits.
  double least_excess = std::numeric_limits<double>::infinity();
  for (const std::pair<int, int>& variant : maker.variants()) {
    for (int stages = 1; stages <= std::min(inputs.model.num_layers(), kMostEqualStages); ++stages) {
      const std::optional<Plan> plan = equal_plan(inputs, options, maker, variant, stages);
      if (!plan) continue;
      if (const auto link = missing_link(*plan, inputs.cluster, inputs.profile)) {
        state.leave_out(*link);
        continue;
      }
      if (!check_plan(*plan, inputs.cluster, inputs.model, inputs.profile).is_ok()) continue;
      if (!check_runs_on(options.engine, *plan).is_ok()) continue;
      // Memory is checked before the step is played, which takes longer.
      Prediction memory;
      memory.peak_memory_bytes = peak_memory_bytes(inputs, *plan);
      const double excess = memory_excess(inputs.cluster, *plan, memory).bytes;
      least_excess = std::min(least_excess, excess);
      if (excess > 0) continue;
      ++best.predictions;
      const auto seconds = predict_seconds(inputs, *plan);
      if (!seconds.is_ok() || seconds.value() >= best.step_seconds) continue;
      best.step_seconds = seconds.value();
      best.plan = *plan;
    }
  }
  if (!best.plan.replicas.empty()) {
    auto classes = class_settings(best.plan, inputs.cluster);
    if (!classes.is_ok()) return classes.status();
    best.plan.classes = classes.take();
    best.left_out = state.all_left_out();
    return best;
  }
  const std::string left_out = state.left_out_suffix();
  if (least_excess < std::numeric_limits<double>::infinity())
    return Status(Code::kConfig,
                  fmt::format("fits memory in no equal split: at best {:.3f} GiB are missing{}",
                              least_excess / (1 << 30), left_out));
  return Status(Code::kConfig, fmt::format("no equal split: a global batch of {} cannot be shared equally{}",
                                           options.global_batch_size, left_out));
}

}  // namespace hdt::plan
