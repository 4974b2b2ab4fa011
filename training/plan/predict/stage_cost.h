// stage_cost.h: seconds and bytes of one stage of a plan, from the profile and the calibration.
#pragma once

#include <cstdint>
#include <vector>

#include "training/plan/describe/cluster.h"
#include "training/plan/describe/model.h"
#include "training/plan/describe/plan.h"
#include "training/plan/describe/profile.h"
#include "training/plan/predict/calibration.h"

namespace hdt::plan {

// What a plan is predicted from. The referred objects must outlive it.
struct PredictionInputs {
  const Cluster& cluster;
  const Model& model;
  const Profile& profile;
  Calibration calibration;
};

struct UnitCost {
  double forward = 0;  // seconds of one micro-batch
  double backward = 0;
  double weight_gradient = 0;    // that part of the backward
  double update = 0;             // seconds of one step
  int64_t parameter_bytes = 0;   // of one device
  int64_t activation_bytes = 0;  // of one device and micro-batch, as profiled
};

// One unit on a device kind.
//
// At small micro-batches a profile may show the time the host takes to launch kernels instead of the
// device's: doubling the smallest micro-batch then adds less than half of its time. Host and device times are
// told apart as the profile's extrapolation to an empty micro-batch, and its rate at the largest one; a run,
// which waits for the device at every tensor-parallel reduction, takes `launch` times the one plus the other
// (calibration.h).
UnitCost unit_cost(const PredictionInputs& inputs, const std::string& device, const LayerKind& kind,
                   int tensor_parallel, int micro_batch_size);

struct StageCost {
  double forward = 0;
  double backward = 0;
  double weight_gradient = 0;
  double update = 0;
  int64_t parameter_bytes = 0;
  int64_t activation_bytes = 0;  // kept
  int64_t recomputed_bytes = 0;  // besides, of the layer whose activations are being computed again
  int64_t output_bytes = 0;      // of one micro-batch, all devices together: what the next stage receives
  std::vector<UnitCost> units;   // in the order of the model's row
};

// Of one device and micro-batch: what a unit computes from, as every device of a tensor-parallel group has
// all of it.
int64_t unit_input_bytes(const Model& model, int unit, int micro_batch_size);

StageCost stage_cost(const PredictionInputs& inputs, const Plan& plan, const training::Layout& layout,
                     training::Position position);

// Of one device, when `in_flight` micro-batches are between their forward and their backward.
double stage_memory_bytes(const PredictionInputs& inputs, const StageCost& cost, int tensor_parallel,
                          int in_flight);

}  // namespace hdt::plan
