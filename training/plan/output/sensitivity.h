// sensitivity.h: how long the step of a plan would take on better hardware. Each change is played by the
// simulation, with everything that depends on it, so its figure is that of a prediction from changed files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "training/plan/describe/plan.h"
#include "training/plan/describe/profile.h"
#include "training/plan/predict/stage_cost.h"

namespace hdt::plan {

// The step of the same plan with one better kind of hardware.
struct Change {
  enum class Kind : uint8_t { kDevice, kMemory, kLinks };
  Kind kind = Kind::kDevice;
  std::string what;            // in words: "a100 a tenth faster"
  std::string device;          // kDevice, kMemory
  std::vector<LinkKey> links;  // kLinks: the entries of the profile that have other rates
  double step_seconds = 0;
};
const char* change_kind_name(Change::Kind kind);

// The changes:
// - each device kind of the plan a tenth faster: all times of its layers shrink;
// - each device kind with twice the memory, in which no more layers are computed again than it takes; this
//   changes only plans that recompute;
// - each link between device kinds of the plan, or inside their nodes, with twice the rates, of messages and
//   of allreduces, in both directions; latencies stay;
// - all links between nodes at once, all links over each kind of NIC, and all links inside nodes, as a ring
//   over several equal links is no faster for one of them alone.
// The change that helps most comes first. Errors are those of predict().
Result<std::vector<Change>> changes(const PredictionInputs& inputs, const Plan& plan);

}  // namespace hdt::plan
