// commands.h: what the subcommands of hdt-plan do. Each prints its result on stdout.
#pragma once

#include <string>

#include "base/status.h"
#include "tools/hdt-plan/inputs.h"
#include "training/plan/plan.h"
#include "training/plan/predictor.h"

namespace hdt::tools {

struct ValidateOptions {
  std::string folder;
  bool json = false;
};
Status validate_command(const ValidateOptions& options);

struct PredictOptions {
  InputPaths inputs;
  std::string plan;
  std::string trace;  // file to write, or empty
  std::string svg;    // file to write, or empty
  bool json = false;
};
Status predict_command(const PredictOptions& options);

// Where a plan lacks memory, and how much.
Status does_not_fit(const plan::Plan& plan, const plan::MemoryExcess& excess);

}  // namespace hdt::tools
