// stage_cost.cc: looks up the profile's measurements, applies the calibration and sums over units.
#include "training/plan/predict/stage_cost.h"

#include <algorithm>

namespace hdt::plan {
namespace {

// A time of a layer: its forward or its backward.
using Part = double (*)(const LayerCost&);

// The host's time, by linear extrapolation from the two smallest micro-batches to an empty one. 0 if the
// profile is not limited by launches: if the host's time is less than half of the smallest micro-batch's.
double launch_seconds(const Profile& profile, ComputeKey key, const std::vector<int>& sizes, Part part) {
  if (sizes.size() < 2) return 0;
  key.micro_batch_size = sizes[0];
  const double smallest = part(*profile.find(key));
  key.micro_batch_size = sizes[1];
  const double next = part(*profile.find(key));
  const double host = smallest - sizes[0] * (next - smallest) / (sizes[1] - sizes[0]);
  return host > smallest / 2 ? host : 0;
}

// `key` is that of `profiled`. Without a factor for launches, or where they do not limit, the measured
// time is scaled as a whole.
double calibrated(const PredictionInputs& inputs, const LayerCost& profiled, ComputeKey key, Part part) {
  const Calibration& calibration = inputs.calibration;
  const double measured = calibration.compute * part(profiled);
  if (!calibration.launch) return measured;
  const std::vector<int> sizes = inputs.profile.micro_batch_sizes(key.device, key.layer, key.tensor_parallel);
  const double host = launch_seconds(inputs.profile, key, sizes, part);
  if (host == 0) return measured;
  const int size = key.micro_batch_size;
  key.micro_batch_size = sizes.back();
  // The largest micro-batch is the least affected by launches, so its rate is the device's own.
  const double device = part(*inputs.profile.find(key)) / sizes.back() * size;
  return *calibration.launch * host + calibration.compute * device;
}

}  // namespace

UnitCost unit_cost(const PredictionInputs& inputs, const std::string& device, const LayerKind& kind,
                   int tensor_parallel, int micro_batch_size) {
  const ComputeKey key{device, kind.name, tensor_parallel, micro_batch_size};
  const LayerCost& profiled = *inputs.profile.find(key);
  UnitCost cost;
  cost.forward = calibrated(inputs, profiled, key, [](const LayerCost& layer) { return layer.forward; });
  cost.backward = calibrated(inputs, profiled, key, [](const LayerCost& layer) { return layer.backward(); });
  // The calibration knows the backward as a whole; its parts keep the profile's proportion.
  cost.weight_gradient = cost.backward * profiled.weight_gradient / profiled.backward();
  cost.update = profiled.update;
  cost.parameter_bytes = kind.parameter_bytes.at(tensor_parallel);
  cost.activation_bytes = profiled.activation_bytes;
  cost.recomputed_attention = profiled.recomputed_attention;
  // Scaled as the backward is, of which it becomes a part.
  if (cost.recomputed_attention)
    cost.recomputed_attention->more_seconds *= cost.backward / profiled.backward();
  return cost;
}

void TensorSums::add(const std::vector<int64_t>& of_sample, int micro_batch_size) {
  for (const int64_t sample : of_sample) {
    ++count;
    bytes += static_cast<double>(sample) * micro_batch_size;
  }
}

int64_t unit_input_bytes(const Model& model, int unit, int micro_batch_size) {
  return unit == 0 ? 0 : model.unit(unit - 1).output_bytes * micro_batch_size;
}

namespace {

// Both uses of a tied matrix are profiled with all of it. A stage with both holds it, and updates it, once.
void take_tied_part(const Model& model, int unit, training::UnitRange range, int tensor_parallel,
                    UnitCost& cost) {
  const bool is_head = unit + 1 == model.num_units();
  if (!model.has_tied_unit() || (unit != 0 && !is_head)) return;
  const int64_t tied = model.tied_parameter_bytes.at(tensor_parallel);
  cost.tied_part = static_cast<double>(tied) / static_cast<double>(cost.parameter_bytes);
  if (!is_head || range.first > 0) return;
  cost.update *= 1 - cost.tied_part;
  cost.parameter_bytes -= tied;
  cost.tied_part = 0;
}

}  // namespace

StageCost stage_cost(const PredictionInputs& inputs, const Plan& plan, const training::Layout& layout,
                     training::Position position) {
  const Replica& replica = plan.replicas[position.replica];
  const Stage& stage = replica.stages[position.stage];
  const std::string& device = inputs.cluster.nodes[inputs.cluster.index_of(stage.node)].device;
  const training::UnitRange range = layout.units_of(position);
  // Unit 0 is the embedding, which is not a layer and is never recomputed.
  const int first_layer = std::max(range.first, 1);
  const int recomputed_layers = stage.recomputed_of(position.chunk);
  StageCost cost;
  cost.fixed_bytes = inputs.profile.fixed_bytes_of(device);
  const LayerKind* previous = nullptr;
  UnitCost profiled;
  for (int unit = range.first; unit < range.end; ++unit) {
    const LayerKind& kind = inputs.model.unit(unit);
    // Units of one kind have one cost, so it is looked up once: a search asks for many stages.
    if (&kind != previous)
      profiled = unit_cost(inputs, device, kind, stage.tensor_parallel, replica.micro_batch_size);
    previous = &kind;
    UnitCost& added = cost.units.emplace_back(profiled);
    take_tied_part(inputs.model, unit, range, stage.tensor_parallel, added);
    const bool recomputed = unit >= first_layer && unit < first_layer + recomputed_layers;
    if (recomputed && stage.attention_only) {
      // check_plan() has seen to it that the profile has it.
      const RecomputedAttention& attention = *added.recomputed_attention;
      added.backward += attention.more_seconds;
      cost.recomputed_bytes =
          std::max(cost.recomputed_bytes, added.activation_bytes - attention.activation_bytes);
      added.activation_bytes = attention.activation_bytes;
    } else if (recomputed) {
      // A recomputed layer runs its forward again before its backward and keeps its input only. One
      // layer at a time is computed again, so the largest one determines the extra memory.
      added.backward += added.forward;
      cost.recomputed_bytes = std::max(cost.recomputed_bytes, added.activation_bytes);
      added.activation_bytes = unit_input_bytes(inputs.model, unit, replica.micro_batch_size);
    }
    if (stage.tensor_parallel > 1) {
      cost.forward_sums.add(kind.forward_sums, replica.micro_batch_size);
      cost.backward_sums.add(kind.backward_sums, replica.micro_batch_size);
      // The forward that runs again has its sums again. Attention is between them.
      if (recomputed && !stage.attention_only)
        cost.backward_sums.add(kind.forward_sums, replica.micro_batch_size);
    }
    cost.forward += added.forward;
    cost.backward += added.backward;
    cost.weight_gradient += added.weight_gradient;
    cost.update += added.update;
    cost.parameter_bytes += added.parameter_bytes;
    cost.activation_bytes += added.activation_bytes;
    // After the loop: that of the stage's last unit.
    cost.output_bytes = kind.output_bytes * replica.micro_batch_size;
  }
  return cost;
}

double StageMemory::bytes(const PredictionInputs& inputs) const {
  const Calibration& calibration = inputs.calibration;
  const auto parameters = static_cast<double>(parameter_bytes);
  return inputs.model.state_factor * parameters -
         inputs.model.optimizer_factor * (parameters - updated_bytes) +
         calibration.activation * (activation_bytes + static_cast<double>(recomputed_bytes)) +
         static_cast<double>(fixed_bytes) + calibration.fixed_bytes +
         calibration.peer_bytes * (tensor_parallel - 1);
}

double stage_memory_bytes(const PredictionInputs& inputs, const StageCost& cost, int tensor_parallel,
                          int in_flight, double state_share) {
  return StageMemory{
      cost.parameter_bytes, in_flight * static_cast<double>(cost.activation_bytes),  cost.recomputed_bytes,
      tensor_parallel,      state_share * static_cast<double>(cost.parameter_bytes), cost.fixed_bytes}
      .bytes(inputs);
}

}  // namespace hdt::plan
