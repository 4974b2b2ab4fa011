// commands.h: what the subcommands of hdt-plan do. Each prints its result on stdout.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tools/hdt-plan/inputs.h"
#include "training/plan/describe/plan.h"
#include "training/plan/predict/predictor.h"

namespace hdt::tools {

struct ValidateOptions {
  std::string measured;      // a published folder, or a file of own runs, which needs `inputs`
  InputPaths inputs;         // of own runs; else empty
  std::string calibrations;  // folder to write calibrations to, or empty
  bool json = false;
};
Status validate_command(const ValidateOptions& options);

struct ProfileCommandOptions {
  std::string folder;                  // for profile.toml and model.toml
  int ranks = 2;                       // from two on links are measured
  std::vector<std::string> arguments;  // for hdt-train: the model, devices to emulate
};
// Becomes hdt-train, under mpirun where there are several ranks; returns only what prevents that.
Status profile_command(const ProfileCommandOptions& options);

struct PredictOptions {
  InputPaths inputs;
  std::string plan;
  std::string trace;  // file to write, or empty
  std::string svg;    // file to write, or empty
  bool json = false;
};
Status predict_command(const PredictOptions& options);

struct ExplainOptions {
  InputPaths inputs;
  std::string plan;
};
Status explain_command(const ExplainOptions& options);

struct ExportOptions {
  std::string plan;
  std::string cluster;
  bool megatron = false;               // flags of Megatron forks instead of the start of hdt-train
  bool classes = false;                // hdtcommd's [class.NAME] sections instead
  std::vector<std::string> arguments;  // for hdt-train
};
Status export_command(const ExportOptions& options);

inline constexpr const char* kAnySchedule = "any";

struct SearchCommandOptions {
  InputPaths inputs;
  int64_t global_batch_size = 0;
  int most_replicas = 100'000;
  int64_t most_predictions = 100'000;
  bool equal = false;  // treat all devices alike
  bool recompute = false;
  std::string schedule = "1f1b";  // or kAnySchedule
  std::string output;             // file to write, or empty: stdout
};
Status search_command(const SearchCommandOptions& options);

struct SimulateOptions {
  InputPaths inputs;  // the cluster; the rest with a plan
  std::string plan;   // or empty: step_seconds
  std::optional<double> step_seconds;
  std::string reliability;
  std::optional<double> checkpoint_interval;  // seconds
  bool json = false;
};
Status simulate_command(const SimulateOptions& options);

// A plan that can run and fits, and its step.
struct PlayedPlan {
  Inputs inputs;
  plan::Plan plan;
  plan::Prediction prediction;
};
Result<PlayedPlan> play_plan(const InputPaths& inputs, const std::string& plan);

}  // namespace hdt::tools
