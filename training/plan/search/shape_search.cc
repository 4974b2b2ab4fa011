// shape_search.cc: branch and bound inside a shape. Everything that is cut off has a lower bound that is
// not below the best step so far, so the best plan is never cut off.
#include "training/plan/search/shape_search.h"

#include <algorithm>
#include <numeric>

#include "base/join.h"
#include "training/engine/schedules.h"
#include "training/plan/describe/node_link.h"
#include "training/plan/describe/plan_text.h"
#include "training/plan/predict/predictor.h"
#include "training/plan/search/replica_orders.h"

namespace hdt::plan {
namespace {

// A base that is slower than the best plan by this factor is not kept.
constexpr double kWorthKeeping = 1.5;

}  // namespace

bool SearchState::offer(const PredictionInputs& inputs, Plan plan, double seconds) {
  if (keep_bases && seconds < kWorthKeeping * best_seconds &&
      plan.runtime.schedule != ScheduleKind::kInterleaved) {
    auto& [fastest, base] =
        bases.try_emplace(shape_text(plan, inputs.cluster), std::numeric_limits<double>::infinity(), Plan{})
            .first->second;
    if (seconds < fastest) {
      fastest = seconds;
      base = plan;
    }
  }
  if (seconds < best_seconds) {
    // The plan that was the best becomes the runner-up, unless the new best has the same shape.
    if (best && shape_text(*best, inputs.cluster) != shape_text(plan, inputs.cluster)) {
      runner_up = std::move(best);
      runner_up_seconds = best_seconds;
    }
    best = std::move(plan);
    best_seconds = seconds;
    return true;
  }
  if (seconds < runner_up_seconds && shape_text(*best, inputs.cluster) != shape_text(plan, inputs.cluster)) {
    runner_up = std::move(plan);
    runner_up_seconds = seconds;
  }
  return false;
}

std::optional<double> SearchState::play(const PredictionInputs& inputs, const SearchOptions& options,
                                        Plan plan) {
  if (ended_early) return std::nullopt;
  if (predictions >= options.most_predictions || out_of_time()) {
    ended_early = true;
    return std::nullopt;
  }
  if (!check_runs_on(options.engine, plan).is_ok()) return std::nullopt;
  ++predictions;
  // A plan that cannot run (its stages wait for each other for ever) is skipped.
  const auto seconds = predict_seconds(inputs, plan);
  if (!seconds.is_ok()) return std::nullopt;
  offer(inputs, std::move(plan), seconds.value());
  return seconds.value();
}

bool SearchState::out_of_time() const {
  return deadline && best && std::chrono::steady_clock::now() >= *deadline;
}

std::vector<std::pair<double, Plan>> SearchState::fastest_played(size_t most) const {
  std::vector<const std::pair<double, Plan>*> sorted;
  for (const auto& [shape, base] : bases) sorted.push_back(&base);
  std::ranges::stable_sort(sorted, {}, [](const auto* base) { return base->first; });
  std::vector<std::pair<double, Plan>> fastest;
  for (size_t i = 0; i < std::min(most, sorted.size()); ++i) fastest.push_back(*sorted[i]);
  return fastest;
}

std::vector<Plan> SearchState::fastest_bases(size_t most) const {
  std::vector<Plan> fastest;
  for (auto& [seconds, plan] : fastest_played(most)) fastest.push_back(std::move(plan));
  return fastest;
}

void SearchState::leave_out(const MissingLink& link) {
  const std::tuple kinds{link.from_kind, link.to_kind, link.from == link.to};
  ++left_out.try_emplace(kinds, LeftOut{link, 0}).first->second.placements;
}

std::vector<LeftOut> SearchState::all_left_out() const {
  std::vector<LeftOut> all;
  for (const auto& [kinds, left] : left_out) all.push_back(left);
  return all;
}

std::string SearchState::left_out_suffix() const {
  const std::vector<std::string> texts = left_out_texts(all_left_out());
  return texts.empty() ? "" : "; " + join(texts, "; ");
}

ShapeSearch::ShapeSearch(const PredictionInputs& inputs, const SearchOptions& options, const Shape& shape,
                         SearchState& state)
    : inputs_(inputs),
      options_(options),
      shape_(shape),
      state_(state),
      kinds_(inputs.cluster.node_kinds()),
      every_order_(num_devices(inputs.cluster) <= kMostDevicesOfAllOrders) {
  for (const ReplicaShape& replica : shape.replicas) {
    nodes_.emplace_back();
    for (const std::string& node : replica.nodes)
      nodes_.back().push_back(&inputs.cluster.nodes[inputs.cluster.index_of(node)]);
    for (const int kind : replica.kinds) {
      const std::tuple key{kind, shape.tensor_parallel, replica.micro_batch_size};
      if (!state.costs.contains(key))
        state.costs.emplace(
            key, RangeCosts(inputs, kinds_[kind].device, shape.tensor_parallel, replica.micro_batch_size));
    }
  }
}

bool ShapeSearch::can_be_cut() const {
  int64_t divisor = 0;
  int64_t least = 0;
  for (const ReplicaShape& replica : shape_.replicas) {
    divisor = std::gcd(divisor, int64_t{replica.micro_batch_size});
    least += replica.micro_batch_size;
  }
  return options_.global_batch_size % divisor == 0 && options_.global_batch_size >= least;
}

// The split depends on the kinds and the size alone, so replicas of all shapes share it. A step that is
// shorter than the best one has room for so many samples in each replica; shapes whose replicas have too
// little room together are done with here.
bool ShapeSearch::balance() {
  double samples = 0;
  for (size_t replica = 0; replica < shape_.replicas.size(); ++replica) {
    const ReplicaShape& shape = shape_.replicas[replica];
    std::vector<int> key = shape.kinds;
    key.insert(key.end(), {shape.micro_batch_size, shape_.tensor_parallel});
    auto known = state_.balanced.find(key);
    if (known == state_.balanced.end())
      known = state_.balanced.emplace(std::move(key), balanced(static_cast<int>(replica))).first;
    balanced_.push_back(known->second);
    samples += state_.best_seconds / known->second.first * shape.micro_batch_size;
  }
  return samples > static_cast<double>(options_.global_batch_size);
}

void ShapeSearch::play_first_plan() {
  if (!can_be_cut() || !balance() || missing()) return;
  try_greedy();
}

std::optional<Plan> ShapeSearch::first_plan() {
  if (!can_be_cut()) return std::nullopt;
  if (const auto link = missing()) {
    state_.leave_out(*link);
    return std::nullopt;
  }
  balance();
  const std::vector<int64_t> counts = greedy_counts();
  if (counts.empty()) return std::nullopt;
  Plan plan;
  plan.runtime = options_.runtime;
  for (size_t replica = 0; replica < counts.size(); ++replica) {
    plan.replicas.push_back(
        {shape_.replicas[replica].micro_batch_size, static_cast<int>(counts[replica]), {}});
    for (size_t index = 0; index < shape_.replicas[replica].nodes.size(); ++index) {
      plan.replicas.back().stages.push_back(
          {balanced_[replica].second[index], shape_.replicas[replica].nodes[index], shape_.tensor_parallel});
    }
  }
  return plan;
}

// 1. Links depend on the nodes alone, so one look serves all plans of the shape.
// 2. The best split of each replica by time alone, whose longest stage bounds all splits.
// 3. All plans that may be better than the best so far.
void ShapeSearch::run() {
  if (!can_be_cut()) return;
  const bool worth = balance();
  if (const auto link = missing()) return state_.leave_out(*link);
  if (!worth) return;
  std::vector<int64_t> counts;
  give_out(0, options_.global_batch_size, counts);
}

std::optional<MissingLink> ShapeSearch::missing() const {
  Plan plan;
  for (const ReplicaShape& replica : shape_.replicas) {
    plan.replicas.emplace_back();
    for (const std::string& node : replica.nodes)
      plan.replicas.back().stages.push_back({1, node, shape_.tensor_parallel});
  }
  return missing_link(plan, inputs_.cluster, inputs_.profile);
}

const RangeCosts& ShapeSearch::costs(int replica, int stage) const {
  return state_.costs.at({shape_.replicas[replica].kinds[stage], shape_.tensor_parallel, size_of(replica)});
}

std::pair<int, int> ShapeSearch::units(int stage, int stages, int first_layer, int layers) {
  return {stage == 0 ? 0 : first_layer + 1, first_layer + layers + (stage + 1 == stages ? 2 : 1)};
}

StageCost ShapeSearch::stage(int replica, int stage, int first_layer, int layers) const {
  const auto stages = static_cast<int>(shape_.replicas[replica].kinds.size());
  const auto [first, end] = units(stage, stages, first_layer, layers);
  return costs(replica, stage).range(first, end);
}

// The bound asks for every stage of every partial plan, so the costs are differences of sums.
std::optional<FittedStage> ShapeSearch::fitted(int replica, int index, int first_layer, int layers,
                                               int64_t count) {
  const ReplicaShape& shape = shape_.replicas[replica];
  const auto stages = static_cast<int>(shape.nodes.size());
  const Node& node = *nodes_[replica][index];
  const ScheduleKind schedule = options_.runtime.schedule;
  const MemoryLimit limit{static_cast<double>(node.memory_bytes), shape_.tensor_parallel,
                          most_in_flight(schedule, stages, index, static_cast<int>(count)),
                          splits_backward(schedule) ? RecomputeChoice{} : options_.recompute, state_share()};
  const auto [first, end] = units(index, stages, first_layer, layers);
  auto found = fit_stage(inputs_, costs(replica, index), first, end, limit);
  if (found) return found;
  const double excess = least_excess(inputs_, costs(replica, index), first, end, limit);
  if (excess < state_.least_excess) {
    state_.least_excess = excess;
    state_.excess_device = node.kind();
  }
  return found;
}

double ShapeSearch::message_seconds(int replica, int stage) const {
  const ReplicaShape& shape = shape_.replicas[replica];
  const Link* link =
      link_between(inputs_.cluster, inputs_.profile, kinds_[shape.kinds[stage]],
                   kinds_[shape.kinds[stage + 1]], shape.nodes[stage] == shape.nodes[stage + 1]);
  if (!link) return 0;
  int64_t bytes = std::numeric_limits<int64_t>::max();
  for (const LayerKind& kind : inputs_.model.layers) bytes = std::min(bytes, kind.output_bytes);
  const double message = static_cast<double>(bytes) * size_of(replica);
  // A larger message may have a better rate. So the smallest message at the best rate is the lower
  // bound.
  double fastest = 0;
  for (const auto& [size, rate] : link->bandwidth) fastest = std::max(fastest, rate);
  return link->latency + message / (fastest * inputs_.calibration.point_to_point);
}

// For each stage: the first micro-batch comes to it, it computes `count` of them, and the last gradient
// goes back to the first stage, which then updates. Where backwards are in two parts, the way back may
// be passed while the stage still computes its weights' gradients, so only the way there counts.
double ShapeSearch::bound(int replica, const Split& split, int64_t count) {
  const bool gradient_goes_ahead = splits_backward(options_.runtime.schedule);
  double longest = 0;
  double passed = 0;  // from the first stage to this one and, where backwards are in one, back
  double first_update = 0;
  int layer = 0;
  for (size_t index = 0; index < split.size(); ++index) {
    const auto stage = fitted(replica, static_cast<int>(index), layer, split[index], count);
    if (!stage) return std::numeric_limits<double>::infinity();
    const StageCost& cost = stage->cost;
    if (index == 0) first_update = cost.update;
    const double update = least_update_share() * (gradient_goes_ahead ? cost.update : first_update);
    longest =
        std::max(longest, passed + static_cast<double>(count) * (cost.forward + cost.backward) + update);
    layer += split[index];
    if (index + 1 == shape_.replicas[replica].nodes.size()) break;
    const double message = message_seconds(replica, static_cast<int>(index));
    passed += gradient_goes_ahead ? cost.forward + message : cost.forward + cost.backward + 2 * message;
  }
  return longest;
}

// Each stage takes at least one layer, which bounds `begin` and `end`. Layers x layers x stages steps.
std::pair<double, ShapeSearch::Split> ShapeSearch::balanced(int replica) const {
  const int layers = inputs_.model.num_layers();
  const int stages = static_cast<int>(shape_.replicas[replica].nodes.size());
  // longest[l] is the shortest longest stage of any split of the first l layers over the stages so far.
  // The last stage of that split begins at layer from[s][l].
  std::vector<double> longest(layers + 1, std::numeric_limits<double>::infinity());
  std::vector<std::vector<int>> from(stages, std::vector<int>(layers + 1, 0));
  longest[0] = 0;
  for (int index = 0; index < stages; ++index) {
    std::vector<double> next(layers + 1, std::numeric_limits<double>::infinity());
    for (int end = index + 1; end <= layers - (stages - 1 - index); ++end) {
      for (int begin = index; begin < end; ++begin) {
        const StageCost cost = stage(replica, index, begin, end - begin);
        const double value = std::max(longest[begin], cost.forward + cost.backward);
        if (value >= next[end]) continue;
        next[end] = value;
        from[index][end] = begin;
      }
    }
    longest = std::move(next);
  }
  Split split(stages);
  // Walk back through `from`, from the last stage.
  for (int index = stages - 1, end = layers; index >= 0; end = from[index][end], --index)
    split[index] = end - from[index][end];
  return {longest[layers], split};
}

// Each replica gets one micro-batch; each further one goes to the replica that is done first with it.
// Replicas whose micro-batch is larger than the rest get no more; a rest that fits no replica leaves no
// counts.
std::vector<int64_t> ShapeSearch::greedy_counts() const {
  std::vector<int64_t> counts(balanced_.size(), 1);
  int64_t left = options_.global_batch_size;
  for (const ReplicaShape& replica : shape_.replicas) left -= replica.micro_batch_size;
  const auto end = [&](size_t replica) {
    return static_cast<double>(counts[replica] + 1) * balanced_[replica].first;
  };
  while (left > 0) {
    std::optional<size_t> first;
    for (size_t replica = 0; replica < counts.size(); ++replica) {
      if (shape_.replicas[replica].micro_batch_size <= left && (!first || end(replica) < end(*first)))
        first = replica;
    }
    if (!first) return {};
    ++counts[*first];
    left -= shape_.replicas[*first].micro_batch_size;
  }
  return counts;
}

void ShapeSearch::try_greedy() {
  std::vector<Split> splits;
  for (const auto& [longest, split] : balanced_) splits.push_back(split);
  const std::vector<int64_t> counts = greedy_counts();
  if (counts.empty()) return;
  for (size_t replica = 0; replica < counts.size(); ++replica) {
    if (bound(static_cast<int>(replica), splits[replica], counts[replica]) >= state_.best_seconds) return;
  }
  play(splits, counts);
}

void ShapeSearch::give_out(size_t replica, int64_t left, std::vector<int64_t>& counts) {
  if (replica == shape_.replicas.size()) {
    std::vector<Split> splits;
    choose_splits(0, counts, splits);
    return;
  }
  // Each of the other replicas needs one micro-batch.
  int64_t others = 0;
  for (size_t other = replica + 1; other < shape_.replicas.size(); ++other)
    others += shape_.replicas[other].micro_batch_size;
  const int64_t size = shape_.replicas[replica].micro_batch_size;
  const bool last = replica + 1 == shape_.replicas.size();
  if (last && left % size != 0) return;
  const int64_t least = last ? left / size : 1;
  for (int64_t count = least; count * size <= left - others && may_look(); ++count) {
    // The longest stage of the best split bounds all splits from below. It grows with the count, so
    // larger counts need not be tried.
    if (static_cast<double>(count) * balanced_[replica].first >= state_.best_seconds) break;
    counts.push_back(count);
    give_out(replica + 1, left - count * size, counts);
    counts.pop_back();
  }
}

// All splits of the replica that may be good enough are found first. The best step may get shorter while
// they are tried, so each is compared again.
void ShapeSearch::choose_splits(size_t replica, const std::vector<int64_t>& counts,
                                std::vector<Split>& splits) {
  if (replica == shape_.replicas.size()) {
    play(splits, counts);
    return;
  }
  std::vector<Split> found;
  Split split;
  extend_split(static_cast<int>(replica), counts[replica], 0, split, found);
  for (Split& one : found) {
    if (state_.ended_early || bound(static_cast<int>(replica), one, counts[replica]) >= state_.best_seconds)
      continue;
    splits.push_back(std::move(one));
    choose_splits(replica + 1, counts, splits);
    splits.pop_back();
  }
}

void ShapeSearch::extend_split(int replica, int64_t count, int first_layer, Split& split,
                               std::vector<Split>& found) {
  const int index = static_cast<int>(split.size());
  const int stages = static_cast<int>(shape_.replicas[replica].nodes.size());
  const int left = inputs_.model.num_layers() - first_layer;
  if (index == stages) {
    found.push_back(split);
    return;
  }
  const int behind = stages - index - 1;
  for (int layers = behind == 0 ? left : 1; layers <= left - behind && may_look(); ++layers) {
    // More layers need more memory and more time, also if they are recomputed. So the first number that
    // is too large ends the loop.
    split.push_back(layers);
    const bool worth = bound(replica, split, count) < state_.best_seconds;
    if (worth) extend_split(replica, count, first_layer + layers, split, found);
    split.pop_back();
    if (!worth) return;
  }
}

bool ShapeSearch::may_look() {
  // The budget is given in played steps; a look is much quicker than one.
  constexpr int64_t kLooksPerPrediction = 1000;
  constexpr int64_t kLooksPerGlance = 4096;  // at the clock
  ++state_.looks;
  if (state_.looks > kLooksPerPrediction * options_.most_predictions ||
      (state_.looks % kLooksPerGlance == 0 && state_.out_of_time()))
    state_.ended_early = true;
  return !state_.ended_early;
}

void ShapeSearch::play(const std::vector<Split>& splits, const std::vector<int64_t>& counts) {
  if (state_.ended_early) return;
  Plan plan;
  plan.runtime = options_.runtime;
  for (size_t replica = 0; replica < splits.size(); ++replica) {
    plan.replicas.push_back(
        {shape_.replicas[replica].micro_batch_size, static_cast<int>(counts[replica]), {}});
    for (int index = 0, layer = 0; index < static_cast<int>(splits[replica].size()); ++index) {
      const int layers = splits[replica][index];
      const auto stage = fitted(static_cast<int>(replica), index, layer, layers, counts[replica]);
      plan.replicas.back().stages.push_back(
          {layers, shape_.replicas[replica].nodes[index], shape_.tensor_parallel, stage->recomputed_layers});
      plan.replicas.back().stages.back().attention_only = stage->attention_only;
      layer += layers;
    }
  }
  if (!every_order_) {
    state_.play(inputs_, options_, std::move(plan));
    return;
  }
  state_.play(inputs_, options_, plan);
  for_each_other_order(inputs_, plan,
                       [&](Plan ordered) { state_.play(inputs_, options_, std::move(ordered)); });
}

}  // namespace hdt::plan
