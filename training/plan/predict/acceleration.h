// acceleration.h: what a mixed cluster reaches, against what each of its devices reaches alone.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "training/plan/describe/plan.h"
#include "training/plan/predict/stage_cost.h"

namespace hdt::plan {

// The devices of a node, each alone: it trains the whole model with the micro-batch size that is best for it,
// and recomputes as few layers, or the attention of as few, as its memory makes it.
struct DevicesAlone {
  std::string node;
  std::string device;             // its kind
  int workers = 0;                // devices, or groups of as many as the plan's stages on the node have
  double samples_per_second = 0;  // of each of them; 0: the model does not fit into its memory
  int micro_batch_size = 0;
  int recomputed_layers = 0;
  bool attention_only = false;  // as in Stage
};

// One entry for each node of the cluster, in its order, also for those that the plan does not use. `plan`
// must be one that check_plan() accepts; its global batch is that of the devices, too, to the next whole
// micro-batch. kConfig: a device cannot be predicted alone.
Result<std::vector<DevicesAlone>> devices_alone(const PredictionInputs& inputs, const Plan& plan);

// The sum of their rates, in samples per second. The acceleration ratio of a run is its rate divided by this:
// 1 if no device lost anything by working with the others; more if some lack the memory to work well alone.
double sum_of_rates(const std::vector<DevicesAlone>& nodes);

}  // namespace hdt::plan
