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
  }
  return "";
}

double Prediction::most_memory_bytes() const { return *std::ranges::max_element(peak_memory_bytes); }

Result<Prediction> predict(const PredictionInputs& inputs, const Plan& plan) {
  HDT_RETURN_IF_ERROR(check_plan(plan, inputs.cluster, inputs.model, inputs.profile));
  // From here on only one replica of each class is looked at.
  const EqualReplicas equal = find_equal_replicas(inputs, plan);
  StepSimulation simulation(inputs, equal);
  HDT_RETURN_IF_ERROR(simulation.run());
  Prediction prediction = simulation.take();
  prediction.peak_memory_bytes = peak_memory_bytes(inputs, equal.plan);
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

// Every stage needs the memory of its largest moment: all micro-batches that its schedule keeps in
// flight.
double WorkerMemory::bytes(const PredictionInputs& inputs) const {
  return stage_memory_bytes(inputs, cost, tensor_parallel, in_flight);
}

std::vector<double> peak_memory_bytes(const PredictionInputs& inputs, const Plan& plan) {
  std::vector<double> bytes;
  for (const WorkerMemory& worker : worker_memory(inputs, plan)) bytes.push_back(worker.bytes(inputs));
  return bytes;
}

// How many micro-batches a stage keeps depends on its place in the pipeline. With 1F1B the first stage
// keeps the most.
std::vector<WorkerMemory> worker_memory(const PredictionInputs& inputs, const Plan& plan) {
  const training::Layout layout = plan.layout();
  std::vector<WorkerMemory> workers;
  for (int worker = 0; worker < layout.world_size(); ++worker) {
    const training::Position position = layout.position_of(worker);
    const Replica& replica = plan.replicas[position.replica];
    const int in_flight = most_in_flight(plan.runtime.schedule, static_cast<int>(replica.stages.size()),
                                         position.stage, replica.micro_batches);
    workers.push_back({stage_cost(inputs, plan, layout, position),
                       replica.stages[position.stage].tensor_parallel, in_flight});
  }
  return workers;
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
