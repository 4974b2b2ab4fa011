// stage_cost.h: the seconds and bytes of one stage of a plan, from the profile and the calibration.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "training/plan/describe/cluster.h"
#include "training/plan/describe/model.h"
#include "training/plan/describe/plan.h"
#include "training/plan/describe/profile.h"
#include "training/plan/predict/calibration.h"

namespace hdt::plan {

// All inputs of a prediction. The objects that it refers to must outlive it.
struct PredictionInputs {
  const Cluster& cluster;
  const Model& model;
  const Profile& profile;
  Calibration calibration;
};

// One unit on one device of a tensor-parallel group.
struct UnitCost {
  // Seconds of one micro-batch.
  double forward = 0;
  double backward = 0;
  // The part of `backward` that computes the gradient of the weights.
  double weight_gradient = 0;
  // Seconds of one step.
  double update = 0;
  int64_t parameter_bytes = 0;  // of one device
  // The part of the parameters that is the tied matrix (Model::tied_parameter_bytes), and so of the update.
  // The head of a stage that has the embedding, too, has no such part.
  double tied_part = 0;
  int64_t activation_bytes = 0;  // of one device and micro-batch, as profiled
  // The same, and what `backward` takes more, where attention alone is computed again. No value: not
  // profiled.
  std::optional<RecomputedAttention> recomputed_attention = {};
};

// The calibrated cost of one unit of a layer kind on a device kind; the profile must have it.
//
// With small micro-batches a profile may show the time that the host takes to launch kernels instead of
// the device's time. Doubling the smallest micro-batch then adds less than half of its time. The host's
// time is the profile's extrapolation to an empty micro-batch; the device's time follows from the rate
// at the largest micro-batch. A run waits for the device at every tensor-parallel reduction, so it takes
// `launch` times the host's time plus the device's time (calibration.h).
UnitCost unit_cost(const PredictionInputs& inputs, const std::string& device, const LayerKind& kind,
                   int tensor_parallel, int micro_batch_size);

// The sums over the devices of a tensor-parallel group (LayerKind::forward_sums), of one micro-batch.
struct TensorSums {
  int count = 0;
  double bytes = 0;  // of all of them, on each device

  void add(const std::vector<int64_t>& of_sample, int micro_batch_size);
};

// Sums over the units of a stage, or of one of its chunks. Times are for one micro-batch, bytes for one
// device, except as noted.
struct StageCost {
  double forward = 0;
  double backward = 0;
  double weight_gradient = 0;
  double update = 0;
  int64_t parameter_bytes = 0;
  // Kept for each micro-batch in flight.
  int64_t activation_bytes = 0;
  // Needed once: what the largest layer lacks of its activations until it is computed again.
  int64_t recomputed_bytes = 0;
  // Profile::fixed_bytes of the device.
  int64_t fixed_bytes = 0;
  // Bytes that the next stage receives for one micro-batch, all devices together.
  int64_t output_bytes = 0;
  // The units one by one, in the order of the model's row. RangeCosts leaves them out, and the sums.
  std::vector<UnitCost> units;
  // Nothing where a stage has one device.
  TensorSums forward_sums;
  TensorSums backward_sums;
};

// The bytes of a unit's input for one micro-batch: the output of the unit before, or 0 for the first.
// Every device of a tensor-parallel group holds all of it.
int64_t unit_input_bytes(const Model& model, int unit, int micro_batch_size);

// The cost of the chunk at `position`; where a stage has one, that is the whole stage. The plan must have
// passed check_plan(), and `layout` is the plan's.
StageCost stage_cost(const PredictionInputs& inputs, const Plan& plan, const training::Layout& layout,
                     training::Position position);

// What one device of a stage holds at the moment when it holds the most: the sums over the stage's chunks. It
// does not depend on the calibration's factors of memory, so a fit can compute it once and try many factors.
struct StageMemory {
  int64_t parameter_bytes = 0;
  // The activations of all micro-batches in flight, as profiled.
  double activation_bytes = 0;
  // As in StageCost. One chunk at a time computes again.
  int64_t recomputed_bytes = 0;
  int tensor_parallel = 1;
  // The bytes of parameters whose optimizer's states it keeps: all, or its shards.
  double updated_bytes = 0;
  int64_t fixed_bytes = 0;  // as in StageCost

  // Bytes with the calibration in `inputs`: parameters with their gradients and moments, and all else.
  double bytes(const PredictionInputs& inputs) const;
};

// Where a stage has one chunk: bytes that one device needs at the moment when `in_flight` micro-batches are
// between their forward and the end of their backward. `state_share`: the part of the optimizer's states that
// it keeps.
double stage_memory_bytes(const PredictionInputs& inputs, const StageCost& cost, int tensor_parallel,
                          int in_flight, double state_share = 1);

}  // namespace hdt::plan
