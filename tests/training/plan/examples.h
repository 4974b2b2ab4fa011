// examples.h: a small model, two device kinds, and plans that fit: what most tests of the planner start from.
#pragma once

#include "training/plan/describe/plan.h"

namespace hdt::plan {

inline Model example_model(int layers = 4) {
  Model model;
  model.name = "small";
  model.layers = {{"embedding", 1, 1 << 20, {{1, 8 << 20}, {2, 4 << 20}}},
                  {"block", layers, 1 << 20, {{1, 4 << 20}, {2, 2 << 20}}},
                  {"head", 1, 1 << 20, {{1, 8 << 20}, {2, 4 << 20}}}};
  return model;
}

// "fast" computes a block forward in 10 ms and sample, "slow" in 20 ms; nodes talk at 1 GB/s, inside at 10
// GB/s.
inline Profile example_profile() {
  Profile profile;
  profile.name = "example";
  for (const auto& [device, slowness] : {std::pair{"fast", 1.0}, std::pair{"slow", 2.0}}) {
    for (const int tensor_parallel : {1, 2}) {
      for (const int size : {1, 2, 4}) {
        const double unit = slowness * size / tensor_parallel;
        const int64_t bytes = int64_t{size} * (16 << 20) / tensor_parallel;
        profile.compute[{device, "embedding", tensor_parallel, size}] = {.001 * unit, .001 * unit,
                                                                         .001 * unit, .001, bytes};
        profile.compute[{device, "block", tensor_parallel, size}] = {.01 * unit, .01 * unit, .01 * unit, .002,
                                                                     4 * bytes};
        profile.compute[{device, "head", tensor_parallel, size}] = {.02 * unit, .02 * unit, .02 * unit, .001,
                                                                    8 * bytes};
      }
    }
    profile.links[{device, device, true}] = {0, {{1e6, 1e10}}};
    profile.links[{device, device, false}] = {0, {{1e6, 1e9}}};
  }
  profile.links[{"fast", "slow", false}] = {0, {{1e6, 1e9}}};
  return profile;
}

// The example on "fast" with one sample: forward 1 + 4 * 10 + 20 ms, backward twice that.
inline constexpr double kForwardSeconds = .061;
inline constexpr double kBackwardSeconds = .122;
inline constexpr double kUpdateSeconds = .001 + 4 * .002 + .001;

inline Cluster example_cluster() {
  const int64_t memory = int64_t{16} << 30;
  return {{{"a", "fast", 2, memory},
           {"b", "slow", 2, memory},
           {"c", "fast", 2, memory},
           {"d", "slow", 2, memory}}};
}

// Two replicas that are split differently.
inline Plan example_plan() {
  Plan plan;
  plan.replicas = {{1, 4, {{3, "a", 1}, {1, "b", 1}}}, {1, 2, {{2, "c", 1}, {2, "d", 1}}}};
  return plan;
}

}  // namespace hdt::plan
