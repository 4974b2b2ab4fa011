// small_trials.h: a file of trials that are invented, on the example's cluster and with a model that has tied
// matrices and sums over tensor-parallel groups.
#pragma once

#include <string>

#include "tests/training/data/temporary_folder.h"
#include "tests/training/plan/examples.h"
#include "training/plan/describe/toml_files.h"

namespace hdt::plan {

inline constexpr char kSmallTrials[] = R"(name = "lab"
model = "model.toml"
profile = "profile.toml"
cluster = "cluster.toml"

[[trials]]
plan = "plan.toml"
step_seconds = 0.9

[[trials]]
name = "lockstep"
step_seconds = 1.25
peak_memory_bytes = 600000000
schedule = "1f1b-lockstep"
background_send_bytes = 0
  [[trials.replica]]
  micro_batch_size = 1
  micro_batches = 6
    [[trials.replica.stage]]
    layers = 3
    node = "a"
    [[trials.replica.stage]]
    layers = 1
    node = "c"

[[trials]]
name = "two-devices"
step_seconds = 0.7
  [[trials.replica]]
  micro_batch_size = 2
  micro_batches = 3
    [[trials.replica.stage]]
    layers = 2
    node = "a"
    tensor_parallel = 2
    [[trials.replica.stage]]
    layers = 2
    node = "c"
    tensor_parallel = 2

[[trials]]
name = "disturbed"
step_seconds = 5
left_out = "the network was busy"
  [[trials.replica]]
  micro_batch_size = 1
  micro_batches = 6
    [[trials.replica.stage]]
    layers = 4
    node = "a"
)";

// Writes trials.toml and everything that it names.
inline void write_small_trials(const training::TemporaryFolder& folder) {
  Model model = example_model();
  model.tied_parameter_bytes = {{1, 6 << 20}, {2, 3 << 20}};
  model.layers[1].forward_sums = {2 << 20, 2 << 20};
  model.layers[1].backward_sums = {2 << 20, 2 << 20};
  training::write_all(folder.file("model.toml"), to_toml(model));
  training::write_all(folder.file("profile.toml"), to_toml(example_profile()));
  training::write_all(folder.file("cluster.toml"), to_toml(example_cluster()));
  training::write_all(folder.file("plan.toml"), to_toml(example_plan()));
  training::write_all(folder.file("trials.toml"), kSmallTrials);
}

}  // namespace hdt::plan
