// acceleration.h: what a run reaches against what each of its devices reaches alone on the same model
// (training/plan/predict/acceleration.h), by a profile of the devices of --plan.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "tools/hdt-train/flags.h"
#include "tools/hdt-train/run_summary.h"
#include "training/engine/layout.h"
#include "training/plan/describe/cluster.h"
#include "training/plan/describe/model.h"
#include "training/plan/describe/profile.h"
#include "training/plan/predict/acceleration.h"
#include "training/plan/predict/stage_cost.h"

namespace hdt::tools {

// The files that describe the devices and the model of a plan. Read once, and not changed.
struct DescribedDevices {
  plan::Profile profile;
  plan::Cluster cluster;
  plan::Model model;
  // They refer to this object.
  plan::PredictionInputs inputs() const { return {cluster, model, profile, {}}; }
};

// kConfig unless flags.plan fits the files, and these fit each other.
Result<std::unique_ptr<DescribedDevices>> read_devices(const DeviceFiles& files, const TrainFlags& flags);

// How long a rank's device works in one step by its profile, with all its chunks, in seconds.
struct ProfiledWork {
  double compute = 0;  // of all micro-batches
  double update = 0;
};
ProfiledWork profiled_work(const DescribedDevices& devices, const plan::Plan& plan,
                           const training::Layout& layout, int rank);

// Lines with an end each: what each node's devices reach alone, and the ratio, with numerator and
// denominator. `samples_per_second` is what the run has reached.
std::string acceleration_text(const std::vector<plan::DevicesAlone>& alone, double samples_per_second);

// Adds --acceleration-profile and the flags beside it. `flags` must outlive the parsing.
void add_acceleration(CLI::App& app, TrainFlags& flags);
// After parsing: kInvalidArgument names a flag that lacks another one. Fills in the files beside the profile
// where they are not named.
Status take_acceleration(TrainFlags& flags);

// For a run with --acceleration-profile: kConfig if its files are not those of this run's model and of its
// plan's devices.
Result<std::unique_ptr<DescribedDevices>> read_devices_of_run(const TrainFlags& flags);
// The end of the summary of that run: of each rank how long it has computed beside what the profile says, and
// where the rest of its time went; then acceleration_text(). kConfig: a device cannot be predicted alone. ""
// if there was one step only.
Result<std::string> acceleration_of_run(const DescribedDevices& devices, const TrainFlags& flags,
                                        const training::Layout& layout, const RunSummary& summary);

}  // namespace hdt::tools
