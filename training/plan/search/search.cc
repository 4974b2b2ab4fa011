// search.cc: chooses between the exhaustive search and that by classes, goes from schedule to schedule
// and from shape to shape, and words the result.
#include "training/plan/search/search.h"

#include <fmt/format.h>

#include <algorithm>

#include "training/plan/describe/group_classes.h"
#include "training/plan/search/class_search.h"
#include "training/plan/search/shape_search.h"

namespace hdt::plan {
namespace {

// Pairs of nodes without a link that are named.
constexpr size_t kNamedPairs = 8;

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
  int64_t devices = 0;
  for (const Node& node : inputs.cluster.nodes) devices += node.devices;
  return devices <= kMostDevicesOfAllShapes;
}

Result<SearchResult> search(const PredictionInputs& inputs, const SearchOptions& options) {
  HDT_RETURN_IF_ERROR(check_profile(inputs.profile, inputs.model));
  // Shared by all schedules and shapes, so that the best plan of one cuts off plans of the next.
  SearchState state;
  bool any_shape = false;
  const bool all_shapes = exhaustive(inputs);
  std::vector<ScheduleKind> schedules = options.schedules;
  if (schedules.empty()) schedules.push_back(options.runtime.schedule);
  if (std::ranges::find(schedules, ScheduleKind::kGpipe) != schedules.end()) {
    return Status(Code::kInvalidArgument,
                  "schedule gpipe: 1f1b takes the same time with less memory; search with that");
  }
  // `with` is a copy for one schedule. The searches keep a reference to it for the length of their run.
  for (const ScheduleKind schedule : schedules) {
    SearchOptions with = options;
    with.runtime.schedule = schedule;
    if (!all_shapes) {
      any_shape = ClassSearch(inputs, with, state).run() || any_shape;
      continue;
    }
    // A shape that is looked at whole may use up the budget, so each gets its first plan before that.
    for_each_shape(inputs, options.most_replicas, [&](const Shape& shape) {
      ShapeSearch(inputs, with, shape, state).play_first_plan();
      return !state.ended_early;
    });
    for_each_shape(inputs, options.most_replicas, [&](const Shape& shape) {
      any_shape = true;
      ShapeSearch(inputs, with, shape, state).run();
      return !state.ended_early;
    });
  }
  if (!any_shape)
    return Status(Code::kConfig, "the profile has no device kind of the cluster for this model");
  // Three reasons for finding nothing: no device kind is profiled; no plan could be made; no plan fits
  // memory.
  if (!state.best && state.excess_device.empty())
    return Status(Code::kConfig, fmt::format("no plan: a global batch of {} cannot be cut into the profile's "
                                             "micro-batches on this cluster{}",
                                             options.global_batch_size, state.left_out_suffix()));
  if (!state.best)
    return Status(Code::kConfig,
                  fmt::format("fits memory in no split{}: at best {:.3f} GiB are missing on each device of "
                              "kind '{}'{}",
                              options.recompute ? ", with all layers recomputed" : "",
                              state.least_excess / (1 << 30), state.excess_device, state.left_out_suffix()));
  SearchResult result;
  result.plan = *state.best;
  // The classes follow from the plan; no search is needed for them.
  auto classes = class_settings(result.plan, inputs.cluster);
  if (!classes.is_ok()) return classes.status();
  result.plan.classes = classes.take();
  result.step_seconds = state.best_seconds;
  result.proof = !all_shapes         ? SearchProof::kNone
                 : state.ended_early ? SearchProof::kEndedEarly
                                     : SearchProof::kBest;
  result.predictions = state.predictions;
  result.left_out = state.all_left_out();
  result.runner_up = state.runner_up;
  result.runner_up_seconds = state.runner_up_seconds;
  return result;
}

}  // namespace hdt::plan
