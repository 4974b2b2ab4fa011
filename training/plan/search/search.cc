// search.cc: chooses between the exhaustive search and that by classes, goes from schedule to schedule
// and from shape to shape, and words the result.
#include "training/plan/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "training/plan/describe/group_classes.h"
#include "training/plan/search/candidates.h"
#include "training/plan/search/class_search.h"
#include "training/plan/search/improve.h"
#include "training/plan/search/interleaved_search.h"
#include "training/plan/search/shape_search.h"
#include "training/plan/search/textbook.h"

namespace hdt::plan {
namespace {

// Pairs of nodes without a link that are named.
constexpr size_t kNamedPairs = 8;

// The part of the budget that interleaved plans have beside other schedules.
constexpr int64_t kPartForInterleaved = 10;

// Plays that may improve interleaved plans, for each number of chunks. Those of a large cluster take longer.
constexpr int kMostMoves = 1000;
constexpr int kMostMovesOfLargeClusters = 100;

// Bases of other shapes that interleaved plans are made from.
constexpr size_t kMostBases = 32;

// Layouts of the textbook that are kept for playing, on clusters of up to kMostDevicesOfAllLayouts devices
// and on larger ones (plays_on()).
constexpr size_t kMostLayouts = 100'000;
constexpr int64_t kLayoutsOfLargeClusters = 16;

// Plans that improvement starts from, and plays for each.
constexpr size_t kMostStarts = 4;
constexpr int64_t kMostClimb = 600;
constexpr int64_t kClimbOfLargeClusters = 40;
// Plays that improvement has when the shapes have used up the budget; not with budgets smaller than that.
constexpr int64_t kPartForImprovement = 10'000;
constexpr int64_t kFewPredictions = 1000;

// Tries interleaved plans. `alone`: no other schedule was searched, so there are no bases yet. False: no
// device kind of the cluster is profiled for this model.
bool search_interleaved(const PredictionInputs& inputs, const SearchOptions& options, bool all_shapes,
                        bool alone, SearchState& state, int64_t& plays) {
  SearchOptions with = options;
  with.runtime.schedule = ScheduleKind::kInterleaved;
  const int64_t budget =
      alone ? options.most_predictions : std::max<int64_t>(1, options.most_predictions / kPartForInterleaved);
  InterleavedSearch interleaved(inputs, with, budget, state);
  bool any_shape = !alone;
  std::vector<Plan> bases = state.fastest_bases(kMostBases);
  if (alone && !all_shapes) {
    // The plans of one chunk are bases only, so they are offered to a state of their own.
    SearchOptions plain = options;
    plain.runtime.schedule = ScheduleKind::kOneForwardOneBackward;
    SearchState of_bases;
    of_bases.keep_bases = true;
    any_shape = ClassSearch(inputs, plain, of_bases).run();
    bases = of_bases.fastest_bases(kMostBases);
    state.left_out = std::move(of_bases.left_out);
    state.least_excess = of_bases.least_excess;
    state.excess_device = of_bases.excess_device;
  }
  for (const Plan& base : bases) interleaved.try_base(base);
  if (all_shapes) {
    for_each_shape(inputs, options.most_replicas, [&](const Shape& shape) {
      any_shape = true;
      const std::optional<Plan> base = ShapeSearch(inputs, with, shape, state).first_plan();
      return !base || interleaved.try_base(*base);
    });
  }
  interleaved.improve(all_shapes ? kMostMoves : kMostMovesOfLargeClusters);
  plays = interleaved.plays();
  return any_shape;
}

// Plays the textbook's layouts for the schedule, those with the shortest estimates first.
void play_textbook(const PredictionInputs& inputs, const SearchOptions& options, SearchState& state) {
  PlanGauge gauge(inputs, options, state);
  const bool large = num_devices(inputs.cluster) > kMostDevicesOfAllLayouts;
  const auto layouts = static_cast<size_t>(plays_on(inputs.cluster, kLayoutsOfLargeClusters));
  Candidates pool(inputs, options, state, gauge, large ? layouts : kMostLayouts);
  for_each_textbook_plan(inputs, options, gauge, [&](Plan plan) { return pool.add(std::move(plan)); });
  pool.play(large ? 1 : std::numeric_limits<double>::infinity());
}

// With sharded states plans of a large cluster are made for at least so many replicas, one number after the
// other: more replicas leave more memory to each stage.
constexpr int kFewestReplicas[] = {2, 8, 32, 128};

// All shapes of a small cluster. `several`: those of two replicas or more. Returns whether there was any.
bool search_shapes(const PredictionInputs& inputs, const SearchOptions& options, bool several,
                   SearchState& state) {
  bool any_shape = false;
  const auto is_new = [&](const Shape& shape) { return !several || shape.replicas.size() > 1; };
  // A shape that is looked at whole may use up the budget, so each gets its first plan before that.
  const auto first = [&](const Shape& shape) {
    any_shape = true;
    if (is_new(shape)) ShapeSearch(inputs, options, shape, state).play_first_plan();
    return !state.ended_early;
  };
  const auto whole = [&](const Shape& shape) {
    if (is_new(shape)) ShapeSearch(inputs, options, shape, state).run();
    return !state.ended_early;
  };
  for_each_shape(inputs, options.most_replicas, first);
  if (num_devices(inputs.cluster) <= kMostDevicesOfAllOrders) {
    for_each_order(inputs, options.most_replicas, first);
    for_each_order(inputs, options.most_replicas, whole);
  } else {
    for_each_shape(inputs, options.most_replicas, whole);
  }
  return any_shape;
}

// Plans of one chunk a stage for the options' schedule and optimizer states; `beside_whole`: plans with whole
// states are searched as well. False: no device kind of the cluster is profiled for this model.
bool search_flat(const PredictionInputs& inputs, const SearchOptions& options, bool all_shapes,
                 bool beside_whole, SearchState& state) {
  play_textbook(inputs, options, state);
  if (state.out_of_time()) return state.ended_early = true;
  // One replica shares its states with nobody.
  if (all_shapes) return search_shapes(inputs, options, beside_whole, state);
  if (!options.runtime.use_distributed_optimizer) return ClassSearch(inputs, options, state).run();
  bool any_shape = false;
  if (!beside_whole) any_shape = ClassSearch(inputs, options, state).run();
  for (const int replicas : kFewestReplicas) {
    if (replicas <= options.most_replicas)
      any_shape = ClassSearch(inputs, options, state, replicas).run() || any_shape;
  }
  return any_shape;
}

// For the message that nothing fits.
const char* all_recomputed_text(const RecomputeChoice& recompute) {
  if (recompute.layers) return ", with all layers recomputed";
  return recompute.attention ? ", with the attention of all layers recomputed" : "";
}

// Climbs from the best plan, and from the best ones of other shapes. A budget in plays that was used up
// before is not the improvement's, unless it is small.
void improve(const PredictionInputs& inputs, const SearchOptions& options,
             const std::vector<ScheduleKind>& schedules, SearchState& state) {
  const bool large = num_devices(inputs.cluster) > kMostDevicesOfAllLayouts;
  const bool ended_early = std::exchange(state.ended_early, false);
  SearchOptions with = options;
  if (options.most_predictions >= kFewPredictions)
    with.most_predictions = std::max(options.most_predictions, state.predictions + kPartForImprovement);
  PlanGauge gauge(inputs, with, state);
  Improvement improvement(inputs, with, schedules, state, gauge,
                          large ? plays_on(inputs.cluster, kClimbOfLargeClusters) : kMostClimb);
  for (const auto& [seconds, plan] : state.fastest_played(large ? 1 : kMostStarts))
    improvement.climb(plan, seconds);
  state.ended_early = state.ended_early || ended_early;
}

}  // namespace

double ideal_seconds(const PredictionInputs& inputs, int64_t global_batch_size) {
  double rate = 0;  // samples a second
  for (const Node& node : inputs.cluster.nodes) {
    double best = 0;
    for (const auto& [key, cost] : inputs.profile.compute) {
      const int workers = node.devices / key.tensor_parallel;
      // The profile has all layer kinds of a variant or none, so the entry of the first kind stands for
      // the variant.
      const bool first_layer = key.device == node.device && key.layer == inputs.model.layers.front().name;
      if (!first_layer || workers == 0 ||
          !inputs.model.layers.front().parameter_bytes.contains(key.tensor_parallel))
        continue;
      const StageCost whole = RangeCosts(inputs, node.device, key.tensor_parallel, key.micro_batch_size)
                                  .range(0, inputs.model.num_units());
      best = std::max(best, workers * key.micro_batch_size / (whole.forward + whole.backward));
    }
    rate += best;
  }
  return static_cast<double>(global_batch_size) / rate;
}

std::vector<std::string> left_out_texts(const std::vector<LeftOut>& left_out) {
  std::vector<std::string> texts;
  for (const LeftOut& left : left_out) {
    // A cluster of many kinds has many pairs of them.
    if (texts.size() == kNamedPairs) {
      texts.push_back(
          fmt::format("left out: more, for {} other pairs of kinds of nodes", left_out.size() - kNamedPairs));
      break;
    }
    texts.push_back(fmt::format("left out: {} placement{} of stages: {}", left.placements,
                                left.placements == 1 ? "" : "s", left.link.text()));
  }
  return texts;
}

// Whether the cluster is small enough to look at all shapes.
bool exhaustive(const PredictionInputs& inputs) {
  return num_devices(inputs.cluster) <= kMostDevicesOfAllShapes;
}

Result<SearchResult> search(const PredictionInputs& all_inputs, const SearchOptions& options) {
  const Profile profile = profile_for(options.engine, all_inputs.profile);
  const PredictionInputs inputs{all_inputs.cluster, all_inputs.model, profile, all_inputs.calibration};
  HDT_RETURN_IF_ERROR(check_profile(inputs.profile, inputs.model));
  HDT_RETURN_IF_ERROR(check_recompute_choice(inputs, options.recompute));
  // Shared by all schedules and shapes, so that the best plan of one cuts off plans of the next.
  SearchState state;
  if (options.most_seconds)
    state.deadline =
        std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                               std::chrono::duration<double>(*options.most_seconds));
  bool any_shape = false;
  const bool all_shapes = exhaustive(inputs);
  const bool all_orders = num_devices(inputs.cluster) <= kMostDevicesOfAllOrders;
  std::vector<ScheduleKind> schedules = options.schedules;
  if (schedules.empty()) schedules.push_back(options.runtime.schedule);
  if (std::ranges::find(schedules, ScheduleKind::kGpipe) != schedules.end()) {
    return Status(Code::kInvalidArgument,
                  "schedule gpipe: expected 1f1b, or eager-1f1b where links are slow: they need less memory");
  }
  // Interleaved plans come last, made from the plans of the others.
  const bool interleave = std::erase(schedules, ScheduleKind::kInterleaved) > 0;
  state.keep_bases = true;
  const bool also_sharded = options.shard_optimizer && !options.runtime.use_distributed_optimizer;
  // `with` is a copy for one schedule. The searches keep a reference to it for the length of their run.
  for (const ScheduleKind schedule : schedules) {
    SearchOptions with = options;
    with.runtime.schedule = schedule;
    any_shape = search_flat(inputs, with, all_shapes, false, state) || any_shape;
    if (!also_sharded) continue;
    with.runtime.use_distributed_optimizer = true;
    any_shape = search_flat(inputs, with, all_shapes, true, state) || any_shape;
  }
  const bool searched_whole = all_shapes && all_orders && !state.ended_early;
  if (!schedules.empty() && !searched_whole) improve(inputs, options, schedules, state);
  int64_t interleaved_plans = 0;
  if (interleave) {
    SearchOptions with = options;
    for (const bool sharded : {false, true}) {
      if (sharded && !also_sharded) break;
      if (sharded) with.runtime.use_distributed_optimizer = true;
      int64_t plays = 0;
      const bool found = search_interleaved(inputs, with, all_shapes, schedules.empty(), state, plays);
      any_shape = any_shape || found;
      interleaved_plans += plays;
    }
  }
  if (!any_shape)
    return Status(Code::kConfig, "the profile has no device kind of the cluster for this model");
  if (!state.best && state.excess_device.empty() && schedules.empty())
    return Status(
        Code::kConfig,
        fmt::format("no interleaved plan: it needs a replica of two stages or more, {} layers or more "
                    "on each, and micro-batches that are a multiple of its stages{}",
                    InterleavedSearch::kFewestChunks, state.left_out_suffix()));
  // Three reasons for finding nothing: no device kind is profiled; no plan could be made; no plan fits
  // memory.
  if (!state.best && state.excess_device.empty())
    return Status(Code::kConfig, fmt::format("no plan: a global batch of {} cannot be cut into the profile's "
                                             "micro-batches on this cluster{}",
                                             options.global_batch_size, state.left_out_suffix()));
  if (!state.best)
    return Status(Code::kConfig,
                  fmt::format("fits memory in no split{}{}: at best {:.3f} GiB are missing on each device of "
                              "kind '{}'{}",
                              all_recomputed_text(options.recompute),
                              also_sharded ? ", with sharded optimizer states" : "",
                              state.least_excess / (1 << 30), state.excess_device, state.left_out_suffix()));
  SearchResult result;
  result.plan = *state.best;
  // The classes follow from the plan; no search is needed for them.
  auto classes = class_settings(result.plan, inputs.cluster);
  if (!classes.is_ok()) return classes.status();
  result.plan.classes = classes.take();
  result.step_seconds = state.best_seconds;
  result.proof = schedules.empty()   ? SearchProof::kTried
                 : !all_shapes       ? SearchProof::kNone
                 : state.ended_early ? SearchProof::kEndedEarly
                 : all_orders        ? SearchProof::kBest
                                     : SearchProof::kBestOfNeighbours;
  result.interleaved_plans = interleaved_plans;
  result.predictions = state.predictions;
  result.not_played = state.not_played;
  result.left_out = state.all_left_out();
  result.runner_up = state.runner_up;
  result.runner_up_seconds = state.runner_up_seconds;
  return result;
}

}  // namespace hdt::plan
