// flags.h: the command line of hdt-train.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "training/engine/layout_flags.h"
#include "training/engine/trainer.h"
#include "training/plan/describe/plan.h"
#include "training/torch/model_shape.h"

namespace hdt::tools {

// This machine, or this machine slowed down.
struct EmulatedDevice {
  std::string name;
  double slow_down = 1;
};

struct TrainFlags {
  training::ModelShape shape;
  training::LayoutFlags layout;
  std::string plan_path;
  std::optional<plan::Plan> plan;  // what plan_path holds; takes the place of the layout's flags
  training::TrainerOptions trainer;
  int64_t train_iters = 500;
  std::optional<double> min_lr;
  std::optional<int64_t> lr_warmup_iters;
  int threads = 1;

  std::string data_path;  // a dataset PREFIX, or
  std::string text;       // a text file

  int64_t log_interval = 10;
  std::string tensorboard_dir;
  std::string loss_curve;
  std::string loss_log;
  int sample_tokens = 0;
  std::string sample_prompt = "And the ";
  double sample_temperature = 0.8;

  // How many times slower each rank computes; empty: none does. Checked against the ranks by check_slow_down.
  std::vector<double> slow_down;

  std::string profile_folder;  // not empty: measure, do not train
  std::vector<EmulatedDevice> profile_devices;
  std::vector<int> profile_micro_batch_sizes;
};

// Refuses --slow-down for another number of ranks.
Status check_slow_down(const TrainFlags& flags, int world_size);

// The flags, or (second) the exit status of a process that has nothing more to do: 0 after --help, 2 after
// wrong usage, which has been reported.
struct ParsedFlags {
  TrainFlags flags;
  std::optional<int> exit_status;
};
ParsedFlags parse_flags(int argc, char** argv);

}  // namespace hdt::tools
