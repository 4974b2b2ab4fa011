// acceleration.cc: predicts plans of one stage.
#include "training/plan/predict/acceleration.h"

#include <map>
#include <utility>

#include "training/plan/predict/predictor.h"
#include "training/plan/predict/recompute_fit.h"

namespace hdt::plan {
namespace {

Result<DevicesAlone> alone_on(const PredictionInputs& inputs, const Node& node, int tensor_parallel,
                              const Runtime& runtime, int64_t samples) {
  DevicesAlone best{.node = node.name, .device = node.device, .workers = node.devices / tensor_parallel};
  const std::string& layer = inputs.model.layers.front().name;
  for (const int size : inputs.profile.micro_batch_sizes(node.device, layer, tensor_parallel)) {
    Replica replica;
    replica.micro_batch_size = size;
    replica.micro_batches = static_cast<int>((samples + size - 1) / size);
    replica.stages = {
        {.layers = inputs.model.num_layers(), .node = node.name, .tensor_parallel = tensor_parallel}};
    Runtime alone = runtime;
    alone.schedule = ScheduleKind::kOneForwardOneBackward;
    Plan plan{.replicas = {replica}, .runtime = alone};
    const auto bytes_of = [&](const Plan& tried) { return peak_memory_bytes(inputs, tried); };
    const std::vector<double> bytes =
        fit_recomputation(inputs, {.layers = true, .attention = true}, {0}, bytes_of, plan);
    if (bytes.front() > static_cast<double>(node.memory_bytes)) continue;
    const Result<double> seconds = predict_seconds(inputs, plan);
    if (!seconds.is_ok()) return seconds.status();
    const double rate = static_cast<double>(plan.global_batch_size()) / seconds.value();
    if (rate <= best.samples_per_second) continue;
    best.samples_per_second = rate;
    best.micro_batch_size = size;
    best.recomputed_layers = plan.replicas.front().stages.front().recomputed_layers;
    best.attention_only = plan.replicas.front().stages.front().attention_only;
  }
  return best;
}

}  // namespace

Result<std::vector<DevicesAlone>> devices_alone(const PredictionInputs& inputs, const Plan& plan) {
  std::map<std::string, int> degrees;  // by node
  for (const Replica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages) degrees[stage.node] = stage.tensor_parallel;
  }
  std::vector<DevicesAlone> nodes;
  for (const Node& node : inputs.cluster.nodes) {
    const auto found = degrees.find(node.name);
    Result<DevicesAlone> alone = alone_on(inputs, node, found == degrees.end() ? 1 : found->second,
                                          plan.runtime, plan.global_batch_size());
    if (!alone.is_ok()) return alone.status();
    nodes.push_back(alone.take());
  }
  return nodes;
}

double sum_of_rates(const std::vector<DevicesAlone>& nodes) {
  double sum = 0;
  for (const DevicesAlone& node : nodes) sum += node.workers * node.samples_per_second;
  return sum;
}

}  // namespace hdt::plan
