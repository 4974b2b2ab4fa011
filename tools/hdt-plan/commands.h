// commands.h: the subcommands of hdt-plan. Each prints its result on standard output and returns an
// error for main() to print. Empty paths mean that the flag was not given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tools/hdt-plan/inputs.h"
#include "training/plan/convert/forms.h"
#include "training/plan/describe/plan.h"
#include "training/plan/predict/predictor.h"
#include "training/plan/search/engine_limits.h"

namespace hdt::tools {

// `hdt-plan validate`: predicts measured steps.
struct ValidateOptions {
  // A published folder, a file of trials, or a file of own runs, which needs `inputs`.
  std::string measured;
  // The files that own runs ran on; empty for the others.
  InputPaths inputs;
  // The folder to write calibrations to, as SET.toml; may be empty.
  std::string calibrations;
  bool json = false;
};
// Prints a table or JSON for each set, and writes the calibrations. Takes long, since it fits a
// calibration for each row.
Status validate_command(const ValidateOptions& options);

// `hdt-plan import`: a published folder, or a file of trials, as files for the other subcommands.
struct ImportOptions {
  std::string published;
  // The folder that gets a folder for each set.
  std::string output;
};
// Writes profile.toml, model.toml, cluster.toml, a plan for each row and runs.toml, which `validate` reads.
// kInvalidArgument if a set's folder holds files.
Status import_command(const ImportOptions& options);

// `hdt-plan profile`: measures this machine.
struct ProfileCommandOptions {
  // Where profile.toml and model.toml go.
  std::string folder;
  // Ranks on this machine. Links are measured if there are two or more.
  int ranks = 2;
  // Flags for hdt-train: the model and the devices to emulate.
  std::vector<std::string> arguments;
};
// Replaces this process by hdt-train, started by mpirun if there are several ranks. Returns only if that
// fails.
Status profile_command(const ProfileCommandOptions& options);

// `hdt-plan predict`: time and memory of one step of a plan.
struct PredictOptions {
  InputPaths inputs;
  std::string plan;
  // File for the trace; may be empty.
  std::string trace;
  // File for the picture; may be empty.
  std::string svg;
  bool json = false;
};
// Prints the step and its parts for each worker, with an interval if the calibration has residuals.
Status predict_command(const PredictOptions& options);

// `hdt-plan explain`: what limits a plan. Plays the plan several times and searches a rival.
struct ExplainOptions {
  InputPaths inputs;
  std::string plan;
  bool json = false;
};
// Prints what limits each group of equal workers, what would help, and the rival.
Status explain_command(const ExplainOptions& options);

// `hdt-plan export`: a plan as a command line. At most one of `megatron` and `classes` is true.
struct ExportOptions {
  std::string plan;
  std::string cluster;
  // Print the flags of Megatron forks instead of the command that starts hdt-train.
  bool megatron = false;
  // Print the [class.NAME] sections for hdtcommd instead.
  bool classes = false;
  // Flags that are passed on to hdt-train.
  std::vector<std::string> arguments;
};
// Prints the command line, the flags or the sections. kConfig if the plan cannot be expressed so.
Status export_command(const ExportOptions& options);

// `hdt-plan convert`: a layout in another form.
struct ConvertOptions {
  plan::Form from = plan::Form::kToml;
  plan::Form to = plan::Form::kToml;
  // The file; empty: all flags are in `flags`. The command line's first flag is here if there is no file.
  std::string input;
  std::vector<std::string> flags;
  // The machines; may be empty.
  std::string cluster;
  // Ranks of the job, if the input does not say them.
  std::optional<int> ranks;
  // File for the result. Empty: standard output.
  std::string output;
};
// Writes the form, and warns on standard error of what other frameworks do otherwise. kConfig or
// kInvalidArgument if the input is refused, or the form cannot say it.
Status convert_command(const ConvertOptions& options);

// The value of --schedule that searches all schedules.
inline constexpr const char* kAnySchedule = "any";
// The value of --recompute-granularity that takes what is faster.
inline constexpr const char* kAnyGranularity = "any";

// The values of --engine.
struct EngineName {
  const char* name;
  plan::Engine engine;
};
inline constexpr EngineName kEngines[] = {{"hdt-train", plan::Engine::kHdtTrain},
                                          {"megatron", plan::Engine::kMegatron},
                                          {"any", plan::Engine::kAny}};

// `hdt-plan search`: the fastest plan. The limits are those of plan::SearchOptions.
struct SearchCommandOptions {
  InputPaths inputs;
  // Samples of one step.
  int64_t global_batch_size = 0;
  int most_replicas = 100'000;
  int64_t most_predictions = 100'000;
  // Seconds of the search; no value: no limit.
  std::optional<double> seconds;
  // The engine that is to run the plan: a name of kEngines.
  std::string engine = "hdt-train";
  // Treat all devices alike (training/plan/search/equal_split.h).
  bool equal = false;
  // Stages that lack memory may recompute.
  bool recompute = false;
  // What: plan::kFullGranularity, plan::kSelectiveGranularity or kAnyGranularity.
  std::string recompute_granularity = kAnyGranularity;
  // Try sharded optimizer states beside whole ones.
  bool shard_optimizer = false;
  // A schedule's name, or kAnySchedule.
  std::string schedule = "1f1b";
  // File for the plan. Empty: standard output.
  std::string output;
  // Print JSON, which has the plan's file in it, instead of the plan.
  bool json = false;
};
// Writes the plan, headed by a comment with its step, what is known about it, and what was left out.
Status search_command(const SearchCommandOptions& options);

// `hdt-plan simulate`: steps an hour on machines that fail.
struct SimulateOptions {
  // The cluster; the other files only with a plan.
  InputPaths inputs;
  // The plan whose step is predicted. Empty: `step_seconds` is given.
  std::string plan;
  std::optional<double> step_seconds;
  std::string reliability;
  // Seconds of training between checkpoints. No value: the best one.
  std::optional<double> checkpoint_interval;
  bool json = false;
};
// Prints the goodput at the given checkpoint interval and at the best one.
Status simulate_command(const SimulateOptions& options);

// A plan that can run and that fits memory, with its predicted step.
struct PlayedPlan {
  Inputs inputs;
  plan::Plan plan;
  plan::Prediction prediction;
};
// Reads the inputs and the plan, and predicts the step. An error names the file at fault; a plan that
// does not fit memory is one.
Result<PlayedPlan> play_plan(const InputPaths& inputs, const std::string& plan);

}  // namespace hdt::tools
