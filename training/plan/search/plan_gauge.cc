// plan_gauge.cc: sums of the profile's costs for each replica, and loads of ports for the whole plan.
#include "training/plan/search/plan_gauge.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <set>
#include <tuple>

#include "training/engine/schedules.h"
#include "training/plan/describe/node_link.h"

namespace hdt::plan {

PlanGauge::PlanGauge(const PredictionInputs& inputs, const SearchOptions& options, SearchState& state)
    : inputs_(inputs), options_(options), state_(state), kinds_(inputs.cluster.node_kinds()) {
  for (const Node& node : inputs.cluster.nodes) {
    nodes_.emplace(node.name, static_cast<int>(kind_of_.size()));
    kind_of_.push_back(static_cast<int>(kind_index(kinds_, node)));
  }
}

const RangeCosts* PlanGauge::costs(int kind, int tensor_parallel, int micro_batch_size) {
  const std::tuple key{kind, tensor_parallel, micro_batch_size};
  if (const auto known = state_.costs.find(key); known != state_.costs.end()) return &known->second;
  const std::string& device = kinds_[static_cast<size_t>(kind)].device;
  if (!is_profiled(inputs_, device, tensor_parallel, micro_batch_size)) return nullptr;
  return &state_.costs.emplace(key, RangeCosts(inputs_, device, tensor_parallel, micro_batch_size))
              .first->second;
}

PlanGauge::Message PlanGauge::message(const Replica& replica, size_t stage) const {
  const Stage& from = replica.stages[stage];
  const Stage& to = replica.stages[stage + 1];
  const Link* link = link_between(
      inputs_.cluster, inputs_.profile, inputs_.cluster.nodes[static_cast<size_t>(node_of(from))],
      inputs_.cluster.nodes[static_cast<size_t>(node_of(to))], from.node == to.node);
  if (!link) return {};
  const double efficiency = inputs_.calibration.point_to_point;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const LayerKind& kind : inputs_.model.layers) least = std::min(least, kind.output_bytes);
  double fastest = 0;
  for (const auto& [size, rate] : link->bandwidth) fastest = std::max(fastest, rate);
  const double bytes = static_cast<double>(inputs_.model.layers[1].output_bytes) * replica.micro_batch_size;
  return {link->latency + bytes / (link->rate(bytes) * efficiency),
          link->latency + static_cast<double>(least) * replica.micro_batch_size / (fastest * efficiency)};
}

// The way there and back, as in ShapeSearch::bound() and ClassMaker::evaluate().
PlanGauge::Measure PlanGauge::measured(const Replica& replica, ScheduleKind schedule, size_t sharers) {
  const double state_share = 1.0 / static_cast<double>(sharers);
  Measure measure;
  const auto stages = static_cast<int>(replica.stages.size());
  const bool gradient_goes_ahead = splits_backward(schedule);
  std::vector<StageCost> of_stage;
  int first_layer = 0;
  for (int index = 0; index < stages; ++index) {
    const Stage& stage = replica.stages[static_cast<size_t>(index)];
    const RangeCosts* const range = costs(kind_of(stage), stage.tensor_parallel, replica.micro_batch_size);
    if (!range) return {};
    const Node& node = inputs_.cluster.nodes[static_cast<size_t>(node_of(stage))];
    const MemoryLimit limit{static_cast<double>(node.memory_bytes), stage.tensor_parallel,
                            most_in_flight(schedule, stages, index, replica.micro_batches),
                            gradient_goes_ahead ? RecomputeChoice{} : options_.recompute, state_share};
    const int first = index == 0 ? 0 : first_layer + 1;
    const int end = first_layer + stage.layers + (index + 1 == stages ? 2 : 1);
    const auto fitted = fit_stage(inputs_, *range, first, end, limit);
    if (!fitted) {
      const double excess = least_excess(inputs_, *range, first, end, limit);
      if (excess < state_.least_excess) {
        state_.least_excess = excess;
        state_.excess_device = node.kind();
      }
      return {};
    }
    measure.recomputed.emplace_back(fitted->recomputed_layers, fitted->attention_only);
    of_stage.push_back(fitted->cost);
    first_layer += stage.layers;
  }
  measure.fits = true;
  double passed = 0;  // by the bound
  for (int index = 0; index < stages; ++index) {
    const StageCost& cost = of_stage[static_cast<size_t>(index)];
    // A tied matrix may have twice as many owners.
    const double least_share = state_share / (inputs_.model.has_tied_unit() ? 2 : 1);
    const double update = least_share * (gradient_goes_ahead ? cost.update : of_stage.front().update);
    measure.each.push_back(cost.forward + cost.backward);
    measure.around.push_back(passed + update);
    if (index + 1 == stages) break;
    const double least = message(replica, static_cast<size_t>(index)).least_seconds;
    passed += gradient_goes_ahead ? cost.forward + least : cost.forward + cost.backward + 2 * least;
  }
  double there_and_back = 0;
  double update = 0;
  for (int index = stages - 1; index >= 0; --index) {
    const StageCost& cost = of_stage[static_cast<size_t>(index)];
    there_and_back += cost.forward + cost.backward - (gradient_goes_ahead ? cost.weight_gradient : 0);
    double seconds = 0;
    if (index + 1 < stages) seconds = message(replica, static_cast<size_t>(index)).seconds;
    there_and_back += 2 * seconds;
    const int in_flight = most_in_flight(schedule, stages, index, std::numeric_limits<int>::max());
    measure.period =
        std::max({measure.period, measure.each[static_cast<size_t>(index)], there_and_back / in_flight});
    measure.last_backward = std::max(measure.last_backward, cost.backward);
    update = std::max(update, state_share * cost.update);
  }
  measure.fill = std::max(0.0, there_and_back - measure.period) + update;
  return measure;
}

// Memory depends on the micro-batches in flight; a stage has at most two for each stage.
const PlanGauge::Measure& PlanGauge::measure(const Replica& replica, ScheduleKind schedule, size_t sharers) {
  std::vector<int64_t> key = {
      static_cast<int64_t>(schedule), replica.micro_batch_size,
      std::min<int64_t>(replica.micro_batches, 2 * static_cast<int64_t>(replica.stages.size())),
      static_cast<int64_t>(sharers)};
  const std::string* before = nullptr;
  for (const Stage& stage : replica.stages) {
    key.insert(key.end(), {kind_of(stage), stage.layers, stage.tensor_parallel,
                           inputs_.cluster.nodes[static_cast<size_t>(node_of(stage))].memory_bytes,
                           before && *before == stage.node});
    before = &stage.node;
  }
  const auto known = measures_.find(key);
  if (known != measures_.end()) return known->second;
  return measures_.emplace(std::move(key), measured(replica, schedule, sharers)).first->second;
}

bool PlanGauge::fit(Plan& plan) {
  for (Replica& replica : plan.replicas) {
    const Measure& known = measure(replica, plan.runtime.schedule, sharers(plan));
    if (!known.fits) return false;
    for (size_t s = 0; s < replica.stages.size(); ++s)
      std::tie(replica.stages[s].recomputed_layers, replica.stages[s].attention_only) = known.recomputed[s];
  }
  return true;
}

bool PlanGauge::share_out(Plan& plan) {
  struct Next {
    double end = 0;  // with one more micro-batch
    size_t replica = 0;
    bool operator<(const Next& other) const {
      return std::tie(end, replica) > std::tie(other.end, other.replica);
    }
  };
  std::vector<double> periods;
  std::vector<double> fills;
  double most = 0;  // of seconds
  for (size_t r = 0; r < plan.replicas.size(); ++r) {
    Replica& replica = plan.replicas[r];
    // As if the replicas shared the batch equally, for the micro-batches in flight.
    const int64_t samples = static_cast<int64_t>(plan.replicas.size()) * replica.micro_batch_size;
    replica.micro_batches = static_cast<int>((options_.global_batch_size + samples - 1) / samples);
    const Measure& known = measure(replica, plan.runtime.schedule, sharers(plan));
    if (!known.fits) return false;
    periods.push_back(known.period);
    fills.push_back(known.fill);
    most = std::max(most, known.fill + known.period * static_cast<double>(options_.global_batch_size));
  }
  // The micro-batches that end by a time come before those that end later. So the longest time in which the
  // replicas do not do more than the batch is bisected, and only the rest is given out one by one.
  const auto counts = [&](double seconds) {
    int64_t samples = 0;
    for (size_t r = 0; r < plan.replicas.size(); ++r) {
      Replica& replica = plan.replicas[r];
      const double count = std::max(0.0, std::floor((seconds - fills[r]) / periods[r]));
      const int64_t all = options_.global_batch_size / replica.micro_batch_size;
      replica.micro_batches = static_cast<int>(std::min(count, static_cast<double>(all)));
      samples += int64_t{replica.micro_batches} * replica.micro_batch_size;
    }
    return samples;
  };
  double low = 0;
  constexpr double kPrecision = 1e-6;
  for (double high = most; high - low > kPrecision * high;) {
    const double middle = (low + high) / 2;
    (counts(middle) <= options_.global_batch_size ? low : high) = middle;
  }
  int64_t left = options_.global_batch_size - counts(low);
  std::priority_queue<Next> next;
  for (size_t r = 0; r < plan.replicas.size(); ++r)
    next.push({fills[r] + (plan.replicas[r].micro_batches + 1) * periods[r], r});
  while (left > 0 && !next.empty()) {
    const Next chosen = next.top();
    next.pop();
    Replica& replica = plan.replicas[chosen.replica];
    if (replica.micro_batch_size > left) continue;
    left -= replica.micro_batch_size;
    ++replica.micro_batches;
    next.push({chosen.end + periods[chosen.replica], chosen.replica});
  }
  std::erase_if(plan.replicas, [](const Replica& replica) { return replica.micro_batches == 0; });
  return left == 0;
}

double PlanGauge::bound(const Plan& plan) {
  double longest = 0;
  for (const Replica& replica : plan.replicas) {
    const Measure& known = measure(replica, plan.runtime.schedule, sharers(plan));
    for (size_t s = 0; s < known.each.size(); ++s)
      longest = std::max(longest, known.around[s] + replica.micro_batches * known.each[s]);
  }
  return longest;
}

// Activations leave the node of the earlier stage, gradients that of the later one.
std::vector<double> PlanGauge::message_load(const Plan& plan) const {
  std::vector<double> load(kind_of_.size(), 0);
  for (const Replica& replica : plan.replicas) {
    for (size_t s = 0; s + 1 < replica.stages.size(); ++s) {
      if (replica.stages[s].node == replica.stages[s + 1].node) continue;
      const double seconds = replica.micro_batches * message(replica, s).seconds;
      load[static_cast<size_t>(node_of(replica.stages[s]))] += seconds;
      load[static_cast<size_t>(node_of(replica.stages[s + 1]))] += seconds;
    }
  }
  return load;
}

// One ring for each range of units that begins at the same layer; it leaves each of its nodes once. Where
// replicas are split differently the ranges of the real rings are smaller, and their sums are the same. A
// ring of NCCL's kind has a member for each replica, one of libhdt a member for each node.
double PlanGauge::reduction_seconds(const Plan& plan) const {
  const auto replicas = static_cast<double>(plan.replicas.size());
  const bool by_hdt = plan.runtime.reduction == ReductionKind::kHdt;
  if (plan.replicas.size() < 2) return 0;
  // Of each ring, by first layer and number of layers, the bytes of each node.
  std::map<std::pair<int, int>, std::map<int, double>> rings;
  for (const Replica& replica : plan.replicas) {
    int first = 0;
    for (size_t s = 0; s < replica.stages.size(); ++s) {
      const Stage& stage = replica.stages[s];
      double bytes = 0;
      const int from = s == 0 ? 0 : first + 1;
      const int end = first + stage.layers + (s + 1 == replica.stages.size() ? 2 : 1);
      const auto range = state_.costs.find({kind_of(stage), stage.tensor_parallel, replica.micro_batch_size});
      if (range != state_.costs.end())
        bytes = static_cast<double>(range->second.range(from, end).parameter_bytes) * stage.tensor_parallel *
                inputs_.model.gradient_factor();
      rings[{first, stage.layers}][node_of(stage)] = bytes;
      first += stage.layers;
    }
  }
  // The links of a ring between nodes are taken to be as slow as that from its first node to its second one.
  std::vector<double> load(kind_of_.size(), 0);
  const bool one_split = rings.size() == plan.replicas.front().stages.size();
  std::set<int> all_nodes;
  for (const auto& [range, ring] : rings) {
    for (const auto& [node, bytes] : ring) all_nodes.insert(node);
  }
  for (const auto& [range, ring] : rings) {
    const bool crosses = ring.size() > 1 || !one_split;
    const int here = ring.begin()->first;
    int other = ring.size() > 1 ? std::next(ring.begin())->first : here;
    if (ring.size() == 1 && crosses) {
      for (const auto& [unused, all] : rings) {
        for (const auto& [node, bytes] : all) other = node != here ? node : other;
      }
    }
    const auto& nodes = inputs_.cluster.nodes;
    const Link* const link = link_between(inputs_.cluster, inputs_.profile, nodes[static_cast<size_t>(here)],
                                          nodes[static_cast<size_t>(other)], here == other);
    if (!link) continue;
    double members = replicas;
    if (by_hdt && here != other) members = static_cast<double>(one_split ? ring.size() : all_nodes.size());
    // libhdt reduces all bytes to their owners, and broadcasts all of them (reductions.h).
    const bool whole = by_hdt && here != other && plan.runtime.use_distributed_optimizer;
    const double part_of_hop = whole ? 2 : 2 * (members - 1) / members;
    for (const auto& [node, bytes] : ring) {
      const double rate = link->allreduce_rate(bytes) * inputs_.calibration.allreduce;
      load[static_cast<size_t>(node)] += part_of_hop * bytes / rate;
    }
  }
  return *std::ranges::max_element(load);
}

double PlanGauge::estimate(const Plan& plan) {
  double pipelines = 0;
  double hidden = 0;
  for (const Replica& replica : plan.replicas) {
    const Measure& known = measure(replica, plan.runtime.schedule, sharers(plan));
    pipelines = std::max(pipelines, known.fill + replica.micro_batches * known.period);
    hidden = std::max(hidden, known.last_backward);
  }
  const std::vector<double> load = message_load(plan);
  const double reductions = reduction_seconds(plan);
  const double exposed = plan.runtime.overlap_gradients ? std::max(0.0, reductions - hidden) : reductions;
  return std::max(pipelines, *std::ranges::max_element(load)) + exposed;
}

}  // namespace hdt::plan
