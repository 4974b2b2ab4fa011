// explanation.cc: explains a prediction by its parts, and by another plan.
#include "training/plan/output/explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "training/plan/describe/node_link.h"
#include "training/plan/describe/plan_text.h"
#include "training/plan/predict/equal_replicas.h"
#include "training/plan/predict/predictor.h"
#include "training/plan/search/search.h"

namespace hdt::plan {
namespace {

// The parts of a step, averaged over all devices of the cluster. A device that the plan does not use
// spends the whole step as "of unused devices". The averages of two plans have the same sum only if
// their steps are equal, so their difference shows where the slower plan loses time.
std::vector<std::pair<double, std::string>> device_seconds(const PredictionInputs& inputs, const Plan& plan,
                                                           const Prediction& prediction) {
  std::vector<std::pair<double, std::string>> parts = {
      {0, "compute"},   {0, "pipeline messages"}, {0, "gradient reduction"}, {0, "waiting for others"},
      {0, "optimizer"}, {0, "of unused devices"}};
  double devices = 0;
  for (const Node& node : inputs.cluster.nodes) devices += node.devices;
  double unused = devices;
  size_t worker = 0;
  for (const Replica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages) {
      const WorkerTime& time = prediction.workers[worker++];
      const double share = stage.tensor_parallel / devices;
      unused -= stage.tensor_parallel;
      parts[0].first += share * time.compute;
      parts[1].first += share * time.exposed_pipeline;
      parts[2].first += share * time.exposed_reduction;
      parts[3].first += share * time.bubble;
      parts[4].first += share * time.optimizer;
    }
  }
  parts[5].first = unused / devices * prediction.step_seconds;
  return parts;
}

}  // namespace

// The names of device_seconds(), in the order of WorkerTime.
const char* binding_part(const WorkerTime& time) {
  const std::vector<std::pair<double, const char*>> parts = {{time.compute, "compute"},
                                                             {time.exposed_pipeline, "pipeline messages"},
                                                             {time.exposed_reduction, "gradient reduction"},
                                                             {time.bubble, "waiting for others"},
                                                             {time.optimizer, "optimizer"}};
  return std::ranges::max_element(parts, {}, [](const auto& part) { return part.first; })->second;
}

std::string binding_resource(const PredictionInputs& inputs, const Plan& plan, const Prediction& prediction,
                             int worker) {
  const training::Layout layout = plan.layout();
  const training::Position position = layout.position_of(worker);
  const std::vector<Stage>& stages = plan.replicas[position.replica].stages;
  // check_plan() has seen to it that the node exists.
  const auto node_of = [&](const Stage& stage) -> const Node& {
    return inputs.cluster.nodes[inputs.cluster.index_of(stage.node)];
  };
  const Node& node = node_of(stages[position.stage]);
  // A message is held up by the link to one of the neighbours, and a reduction by a hop of one of its
  // rings; in both cases the slowest one is named. The other parts have no link behind them.
  std::string text = binding_part(prediction.workers[worker]);
  if (text == "pipeline messages") {
    // A stage has two neighbours at most; with several chunks the first and the last stage are neighbours,
    // too. Rates are compared at the largest message that was measured.
    double slowest = std::numeric_limits<double>::infinity();
    const auto last = static_cast<int>(stages.size()) - 1;
    const bool in_a_ring = plan.replicas[position.replica].chunks() > 1;
    for (int other : {position.stage - 1, position.stage + 1}) {
      if (in_a_ring) other = other < 0 ? last : other > last ? 0 : other;
      if (other < 0 || other > last) continue;
      const Node& neighbour = node_of(stages[other]);
      const Link& link =
          *link_between(inputs.cluster, inputs.profile, node, neighbour, node.name == neighbour.name);
      // The rate of the largest message that was measured stands for the link.
      if (link.bandwidth.back().second >= slowest) continue;
      slowest = link.bandwidth.back().second;
      text = fmt::format("link {} - {}", node.kind(), neighbour.kind());
    }
  } else if (text == "gradient reduction") {
    // Reductions are known for one replica of each class only, so look at the worker that stands for
    // this one.
    const EqualReplicas equal = find_equal_replicas(inputs, plan);
    const int alike = equal.plan.layout().rank_of({equal.class_of[position.replica], position.stage});
    double slowest = std::numeric_limits<double>::infinity();
    for (const Reduction& reduction : equal.reductions) {
      // Only reductions that this worker takes part in.
      if (!std::ranges::count(reduction.workers, alike)) continue;
      for (const Hop& hop : reduction.hops) {
        const Node& from = inputs.cluster.nodes[hop.from];
        const Node& to = inputs.cluster.nodes[hop.to];
        const double rate = link_between(inputs.cluster, inputs.profile, from, to, hop.inside())
                                ->allreduce_rate(reduction.bytes);
        if (rate >= slowest) continue;
        slowest = rate;
        text = fmt::format("link {} - {}", from.kind(), to.kind());
      }
    }
  }
  // Memory does not take time, but a stage that fills its devices cannot take more layers.
  constexpr double kFull = .95;
  if (prediction.peak_memory_bytes[worker] > kFull * static_cast<double>(node.memory_bytes))
    text += ", memory";
  return text;
}

std::vector<WorkerGroup> worker_groups(const PredictionInputs& inputs, const Plan& plan) {
  const training::Layout layout = plan.layout();
  const std::vector<int> class_of = find_equal_replicas(inputs, plan).class_of;
  std::vector<WorkerGroup> groups;
  std::map<int, std::vector<int>> members;  // of a class
  for (int replica = 0; replica < layout.num_replicas(); ++replica)
    members[class_of[static_cast<size_t>(replica)]].push_back(replica);
  std::vector<std::vector<int>> classes;
  for (auto& [number, replicas] : members) classes.push_back(std::move(replicas));
  std::ranges::sort(classes);
  for (const std::vector<int>& replicas : classes) {
    for (int stage = 0; stage < layout.replica(replicas.front()).stages(); ++stage)
      groups.push_back({replicas, stage, layout.rank_of({replicas.front(), stage})});
  }
  return groups;
}

Result<RivalSearch> best_rival(const PredictionInputs& inputs, const Plan& plan) {
  // Search as the plan was made: the same batch and runtime, and recomputation if the plan uses it.
  SearchOptions options;
  options.global_batch_size = plan.global_batch_size();
  options.runtime = plan.runtime;
  // A plan with sharded optimizer states is compared with those whose states are whole, too.
  options.shard_optimizer = std::exchange(options.runtime.use_distributed_optimizer, false);
  // A plan with chunks is compared with plans of one chunk, too.
  if (plan.runtime.schedule == ScheduleKind::kInterleaved)
    options.schedules = {ScheduleKind::kOneForwardOneBackward, ScheduleKind::kInterleaved};
  for (const Replica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages) {
      if (stage.recomputed_layers > 0) options.recompute = {.layers = true, .attention = true};
      // A plan that hdt-train does not run was searched without that limit.
      if (stage.tensor_parallel != 1) options.engine = Engine::kAny;
    }
  }
  auto found = search(inputs, options);
  if (!found.is_ok()) return found.status();
  SearchResult result = found.take();
  Rival rival{std::move(result.plan), result.step_seconds, ""};
  // If the best plan has the given plan's own shape, the best one of another shape is the rival.
  if (shape_text(rival.plan, inputs.cluster) == shape_text(plan, inputs.cluster)) {
    if (!result.runner_up) return RivalSearch{std::nullopt, std::move(result.left_out)};
    rival.plan = std::move(*result.runner_up);
    rival.step_seconds = result.runner_up_seconds;
  }
  // Both are predicted with all details, as the search keeps only the seconds.
  const auto mine = predict(inputs, plan);
  const auto other = predict(inputs, rival.plan);
  if (!mine.is_ok()) return mine.status();
  if (!other.is_ok()) return other.status();
  // The reason is the part that differs most, in the direction in which the whole step differs.
  const std::vector<std::pair<double, std::string>> before = device_seconds(inputs, plan, mine.value());
  const std::vector<std::pair<double, std::string>> after = device_seconds(inputs, rival.plan, other.value());
  const bool slower = rival.step_seconds > mine.value().step_seconds;
  double most = 0;
  for (size_t part = 0; part < before.size(); ++part) {
    const double more = after[part].first - before[part].first;
    // Parts that changed in the other direction explain nothing.
    if ((slower ? more : -more) <= most) continue;
    most = slower ? more : -more;
    rival.reason = fmt::format("{:.3g} s {} {} on the average device", most, slower ? "more" : "less",
                               before[part].second);
  }
  if (rival.step_seconds == mine.value().step_seconds) rival.reason = "as long as the given plan";
  return RivalSearch{std::move(rival), std::move(result.left_out)};
}

}  // namespace hdt::plan
