// micro_batch_sizes.cc: lines through measured micro-batch sizes.
#include "training/plan/describe/micro_batch_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace hdt::plan {
namespace {

// No device has that much memory. It keeps sums of bytes far from the limit of their type.
constexpr double kMostBytes = 1e15;

// (micro-batch size, its value), sizes increasing, at least one.
using Points = std::vector<std::pair<int, double>>;

// The value at a size that is not among the points.
double value_at(const Points& points, int size) {
  if (points.size() == 1) return points[0].second * size / points[0].first;
  const auto above = std::ranges::lower_bound(points, size, {}, &Points::value_type::first);
  // The two points that the line goes through.
  const auto right = std::clamp(above, points.begin() + 1, points.end() - 1);
  const auto left = right - 1;
  double per_sample = (right->second - left->second) / (right->first - left->first);
  if (above != points.begin() && above != points.end())
    return left->second + per_sample * (size - left->first);
  const auto& nearest = above == points.begin() ? points.front() : points.back();
  per_sample = std::clamp(per_sample, 0.0, nearest.second / nearest.first);
  return nearest.second + per_sample * (size - nearest.first);
}

// What was measured of one layer kind, by size.
using Measured = std::vector<std::pair<int, const LayerCost*>>;

LayerCost derived_cost(const Measured& measured, int size) {
  const auto value = [&](auto field) {
    Points points;
    for (const auto& [measured_size, cost] : measured) points.emplace_back(measured_size, field(*cost));
    return value_at(points, size);
  };
  LayerCost cost;
  cost.forward = value([](const LayerCost& layer) { return layer.forward; });
  cost.input_gradient = value([](const LayerCost& layer) { return layer.input_gradient; });
  cost.weight_gradient = value([](const LayerCost& layer) { return layer.weight_gradient; });
  const auto bytes = [&](auto field) {
    const double line = value([field](const LayerCost& layer) { return static_cast<double>(field(layer)); });
    return std::llround(std::min(line, kMostBytes));
  };
  cost.activation_bytes = bytes([](const LayerCost& layer) { return layer.activation_bytes; });
  if (std::ranges::all_of(measured,
                          [](const auto& entry) { return entry.second->recomputed_attention.has_value(); })) {
    cost.recomputed_attention = {
        value([](const LayerCost& layer) { return layer.recomputed_attention->more_seconds; }),
        std::min<int64_t>(cost.activation_bytes, bytes([](const LayerCost& layer) {
                            return layer.recomputed_attention->activation_bytes;
                          }))};
  }
  // The update is once a step, whatever the size; what was measured beside the nearest one counts.
  const auto nearest = std::ranges::min_element(
      measured, {}, [size](const auto& entry) { return std::abs(int64_t{entry.first} - size); });
  cost.update = nearest->second->update;
  cost.derived = true;
  return cost;
}

// What is to be known of a size outside of the measured ones; nothing for a size between them.
std::optional<std::string> warning(const std::string& device, int tensor_parallel, int size,
                                   const std::vector<int>& measured) {
  const std::string what =
      fmt::format("device '{}' with tensor_parallel {}: micro_batch_size {} was not measured", device,
                  tensor_parallel, size);
  if (measured.size() == 1)
    return fmt::format(
        "{}, and {} alone was: its times are scaled with the samples, as if nothing was spent on launches; "
        "measure a second size, as by hdt-plan profile with --profile-micro-batch-sizes",
        what, measured[0]);
  if (size > measured.front() && size < measured.back()) return std::nullopt;
  return fmt::format("{}: its times continue those of {}", what, fmt::join(measured, ", "));
}

}  // namespace

std::vector<std::string> derive_micro_batch_sizes(Profile& profile, const Cluster& cluster,
                                                  const Plan& plan) {
  std::vector<std::string> warnings;
  std::set<std::tuple<std::string, int, int>> seen;
  for (const Replica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages) {
      const int node = cluster.index_of(stage.node);
      const int size = replica.micro_batch_size;
      if (node < 0 || size < 1) continue;
      const std::string& device = cluster.nodes[static_cast<size_t>(node)].device;
      if (!seen.emplace(device, stage.tensor_parallel, size).second) continue;
      std::map<std::string, Measured> layers;
      for (const auto& [key, cost] : profile.compute) {
        if (key.device == device && key.tensor_parallel == stage.tensor_parallel && !cost.derived)
          layers[key.layer].emplace_back(key.micro_batch_size, &cost);
      }
      bool added = false;
      for (const auto& [layer, measured] : layers) {
        const ComputeKey key{device, layer, stage.tensor_parallel, size};
        if (profile.find(key)) continue;
        profile.compute.emplace(key, derived_cost(measured, size));
        added = true;
      }
      if (!added) continue;
      const auto text =
          warning(device, stage.tensor_parallel, size,
                  profile.micro_batch_sizes(device, layers.begin()->first, stage.tensor_parallel));
      if (text) warnings.push_back(*text);
    }
  }
  return warnings;
}

}  // namespace hdt::plan
