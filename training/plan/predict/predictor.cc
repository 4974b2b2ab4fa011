// predictor.cc: a prediction in four steps: check the plan, find equal replicas, play one of each class,
// and copy the result to all workers.
#include "training/plan/predict/predictor.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "training/engine/schedules.h"
#include "training/plan/predict/step_simulation.h"

namespace hdt::plan {

const char* span_name(SpanKind kind) {
  switch (kind) {
    case SpanKind::kForward:
      return "forward";
    case SpanKind::kBackward:
      return "backward";
    case SpanKind::kActivation:
      return "send activation";
    case SpanKind::kGradient:
      return "send gradient";
    case SpanKind::kReduction:
      return "reduce";
    case SpanKind::kUpdate:
      return "update";
    case SpanKind::kInputGradient:
      return "input gradient";
    case SpanKind::kWeightGradient:
      return "weight gradient";
    case SpanKind::kGather:
      return "gather parameters";
  }
  return "";
}

namespace {

std::vector<double> bytes_of(const PredictionInputs& inputs, const std::vector<StageMemory>& workers) {
  std::vector<double> bytes;
  for (const StageMemory& worker : workers) bytes.push_back(worker.bytes(inputs));
  return bytes;
}

}  // namespace

double Prediction::most_memory_bytes() const { return *std::ranges::max_element(peak_memory_bytes); }

Result<Prediction> predict(const PredictionInputs& inputs, const Plan& plan) {
  HDT_RETURN_IF_ERROR(check_plan(plan, inputs.cluster, inputs.model, inputs.profile));
  // From here on only one replica of each class is looked at.
  const EqualReplicas equal = find_equal_replicas(inputs, plan);
  StepSimulation simulation(inputs, equal);
  HDT_RETURN_IF_ERROR(simulation.run());
  Prediction prediction = simulation.take();
  prediction.peak_memory_bytes = bytes_of(inputs, worker_memory(inputs, equal.plan, equal.shares));
  return equal.of_all(prediction);
}

Result<double> predict_seconds(const PredictionInputs& inputs, const Plan& plan) {
  HDT_RETURN_IF_ERROR(check_plan(plan, inputs.cluster, inputs.model, inputs.profile));
  return predict_checked_seconds(inputs, plan);
}

Result<double> predict_checked_seconds(const PredictionInputs& inputs, const Plan& plan) {
  const EqualReplicas equal = find_equal_replicas(inputs, plan);
  StepSimulation simulation(inputs, equal);
  HDT_RETURN_IF_ERROR(simulation.run());
  return simulation.take().step_seconds;
}

std::vector<double> peak_memory_bytes(const PredictionInputs& inputs, const Plan& plan) {
  return bytes_of(inputs, worker_memory(inputs, plan));
}

namespace {

// The bytes of activations at the largest moment of a stage with several chunks: `steps` are played, where a
// forward adds the bytes of its chunk, and the end of its backward takes them away. Chunks differ, so the
// moment with the most micro-batches in flight need not be the largest.
double most_activation_bytes(const std::vector<training::PipelineStep>& steps,
                             const std::vector<StageCost>& chunks) {
  double held = 0;
  double most = 0;
  for (const training::PipelineStep& step : steps) {
    const auto bytes = static_cast<double>(chunks[static_cast<size_t>(step.chunk)].activation_bytes);
    if (step.action == training::PipelineAction::kForward) most = std::max(most, held += bytes);
    if (step.action == training::PipelineAction::kBackward) held -= bytes;
  }
  return most;
}

}  // namespace

// How many micro-batches a stage keeps depends on its place in the pipeline. With 1F1B the first stage
// keeps the most.
std::vector<StageMemory> worker_memory(const PredictionInputs& inputs, const Plan& plan,
                                       const StateShares& shares) {
  const training::Layout layout = plan.layout();
  const ScheduleKind schedule = plan.runtime.schedule;
  std::vector<StageMemory> workers;
  for (int worker = 0; worker < layout.world_size(); ++worker) {
    training::Position position = layout.position_of(worker);
    const Replica& replica = plan.replicas[position.replica];
    const auto stages = static_cast<int>(replica.stages.size());
    StageMemory memory;
    memory.tensor_parallel = replica.stages[position.stage].tensor_parallel;
    std::vector<StageCost> chunks;
    for (; position.chunk < replica.chunks(); ++position.chunk) {
      const StageCost& cost = chunks.emplace_back(stage_cost(inputs, plan, layout, position));
      memory.parameter_bytes += cost.parameter_bytes;
      memory.recomputed_bytes = std::max(memory.recomputed_bytes, cost.recomputed_bytes);
      memory.fixed_bytes = cost.fixed_bytes;
      if (!shares.sharded()) continue;
      const int first = layout.units_of(position).first;
      for (size_t i = 0; i < cost.units.size(); ++i)
        memory.updated_bytes +=
            shares.of(replica.stages[position.stage], first + static_cast<int>(i), cost.units[i]) *
            static_cast<double>(cost.units[i].parameter_bytes);
    }
    if (!shares.sharded()) memory.updated_bytes = static_cast<double>(memory.parameter_bytes);
    // One chunk: a formula, which costs no time however many micro-batches there are.
    memory.activation_bytes = replica.chunks() == 1
                                  ? most_in_flight(schedule, stages, position.stage, replica.micro_batches) *
                                        static_cast<double>(chunks.front().activation_bytes)
                                  : most_activation_bytes(steps_of(schedule, stages, position.stage,
                                                                   replica.micro_batches, replica.chunks()),
                                                          chunks);
    workers.push_back(memory);
  }
  return workers;
}

std::vector<StageMemory> worker_memory(const PredictionInputs& inputs, const Plan& plan) {
  return worker_memory(inputs, plan, StateShares(plan, inputs.model.has_tied_unit()));
}

MemoryExcess memory_excess(const Cluster& cluster, const Plan& plan, const Prediction& prediction) {
  MemoryExcess most;
  // By node. A table, since Cluster::index_of() searches, and there may be thousands of workers.
  std::unordered_map<std::string_view, double> memory_of;
  for (const Node& node : cluster.nodes) memory_of.emplace(node.name, static_cast<double>(node.memory_bytes));
  int worker = 0;
  for (const Replica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages) {
      const double excess = prediction.peak_memory_bytes[worker] - memory_of.at(stage.node);
      if (excess > most.bytes) most = {worker, excess};
      ++worker;
    }
  }
  return most;
}

}  // namespace hdt::plan
