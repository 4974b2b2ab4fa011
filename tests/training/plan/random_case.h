// random_case.h: random models, profiles and clusters that are small enough to enumerate their plans.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/training/plan/examples.h"
#include "training/plan/predict/predictor.h"
#include "training/plan/search/recomputation.h"
#include "training/plan/search/search.h"

namespace hdt::plan {

// A random model, profile and cluster.
struct RandomCase {
  // Large: eight workers of three kinds and up to twelve layers; one sample, so that they can be enumerated.
  explicit RandomCase(std::mt19937& random, bool large = false, int most_workers = 5) {
    const auto any = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
    const auto seconds = [&] { return std::uniform_real_distribution(.001, .03)(random); };
    model = example_model(large ? any(10, 12) : any(1, 6));
    const int kinds = large ? 3 : any(1, 3);
    for (int a = 0; a < kinds; ++a) {
      const std::string device(1, static_cast<char>('A' + a));
      const bool knows_attention = any(0, 2) > 0;
      for (const LayerKind& kind : model.layers) {
        const LayerCost one = {seconds(), seconds(), seconds(), seconds(), any(1, 64) << 20};
        const RecomputedAttention attention = {seconds() / 3, one.activation_bytes / any(1, 4)};
        for (const int size : {1, 2}) {
          // Twice the samples take less than twice the time.
          const double factor = size == 1 ? 1 : 1.8;
          profile.compute[{device, kind.name, 1, size}] = {one.forward * factor, one.input_gradient * factor,
                                                           one.weight_gradient * factor, one.update,
                                                           one.activation_bytes * size};
          if (knows_attention)
            profile.compute[{device, kind.name, 1, size}].recomputed_attention = {
                attention.more_seconds * factor, attention.activation_bytes * size};
        }
      }
      for (int b = 0; b <= a; ++b) {
        const std::string other(1, static_cast<char>('A' + b));
        profile.links[{device, other, false}] = {1e-5 * any(0, 100),
                                                 {{1e5, 1e7 * any(1, 100)}, {1e8, 1e8 * any(1, 10)}}};
      }
      profile.links[{device, device, true}] = {0, {{1, 1e9}}};
    }
    // With NIC kinds, one kind of device makes two kinds of nodes.
    const bool nics = kinds == 1;
    if (nics) {
      cluster.nics = {{"ib", {"rdma"}, {"*"}}, {"eth", {"tcp"}, {"*"}}};
      profile.links[{"A", "A", false, "ib"}] = {1e-6, {{1, 1e9 * any(1, 10)}}};
    }
    int workers = large ? 8 : any(1, most_workers);
    for (int node = 0; workers > 0; ++node) {
      const int devices = std::min(workers, any(1, 2));
      const std::string device(1, static_cast<char>('A' + (large ? node % 3 : any(0, kinds - 1))));
      cluster.nodes.push_back({"n" + std::to_string(node), device, devices, int64_t{any(100, 800)} << 20});
      if (nics)
        cluster.nodes.back().nics =
            any(0, 1) ? std::vector<std::string>{"ib", "eth"} : std::vector<std::string>{"eth"};
      workers -= devices;
    }
    options.global_batch_size = large ? 1 : any(1, 7);
    options.runtime.overlap_gradients = any(0, 1);
    options.recompute = {.layers = any(0, 1) == 1, .attention = any(0, 1) == 1};
    // Each stage's choice of two would be twice as many plans to enumerate.
    if (large && options.recompute.layers) options.recompute.attention = false;
    // Attention alone must be known of some device.
    if (!options.recompute.layers && !knows_recomputed_attention({cluster, model, profile, {}}))
      options.recompute.attention = false;
    options.shard_optimizer = any(0, 1);
    options.schedules = {ScheduleKind::kOneForwardOneBackward};
    if (any(0, 3) == 0) options.schedules = {ScheduleKind::kZeroBubble};
    if (any(0, 3) == 0) options.schedules = {ScheduleKind::kEager};
    if (any(0, 3) == 0 && !large) {
      options.schedules = {ScheduleKind::kOneForwardOneBackward, ScheduleKind::kEager,
                           ScheduleKind::kZeroBubble};
    }
  }

  Model model;
  Profile profile;
  Cluster cluster;
  SearchOptions options;
};

// The step of a plan in which each stage that lacks memory recomputes the next larger number of layers, as
// long as there are any, with the granularity that makes the step shorter; infinity if it does not fit.
inline double fitted_seconds(const PredictionInputs& inputs, const Plan& plan,
                             const RecomputeChoice& recompute) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  const auto prediction = predict(inputs, plan);
  EXPECT_TRUE(prediction.is_ok()) << prediction.status().message();
  if (!prediction.is_ok()) return kNone;
  const MemoryExcess excess = memory_excess(inputs.cluster, plan, prediction.value());
  if (excess.bytes <= 0) return prediction.value().step_seconds;
  if (plan.runtime.schedule == ScheduleKind::kZeroBubble) return kNone;
  const training::Position position = plan.layout().position_of(excess.worker);
  const Replica& replica = plan.replicas[position.replica];
  const Stage& stage = replica.stages[position.stage];
  const std::string& device = inputs.cluster.nodes[inputs.cluster.index_of(stage.node)].device;
  if (stage.recomputed_layers == stage.layers) return kNone;
  double best = kNone;
  for (const bool attention_only : {false, true}) {
    const bool allowed =
        attention_only
            ? recompute.attention && has_recomputed_attention(inputs.profile, inputs.model, device,
                                                              stage.tensor_parallel, replica.micro_batch_size)
            : recompute.layers;
    if (!allowed || (stage.recomputed_layers > 0 && stage.attention_only != attention_only)) continue;
    Plan more = plan;
    Stage& changed = more.replicas[position.replica].stages[position.stage];
    ++changed.recomputed_layers;
    changed.attention_only = attention_only;
    best = std::min(best, fitted_seconds(inputs, more, recompute));
  }
  return best;
}

}  // namespace hdt::plan
