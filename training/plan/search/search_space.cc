// search_space.cc: enumerates the shapes depth first, and sums up costs.
#include "training/plan/search/search_space.h"

#include <algorithm>
#include <set>

namespace hdt::plan {
namespace {

// One walk through all shapes. The three functions call each other: add_replica() appends a replica to
// the shape, choose_counts() chooses how many workers of each kind it has, order_kinds() in which order
// the kinds come; then the next replica is added.
class ShapeWalk {
 public:
  ShapeWalk(const PredictionInputs& inputs, int most_replicas, const std::function<bool(const Shape&)>& visit)
      : inputs_(inputs), visit_(visit), kinds_(inputs.cluster.node_kinds()), most_replicas_(most_replicas) {}

  // All shapes of one variant.
  void walk(int tensor_parallel, int micro_batch_size) {
    shape_ = {tensor_parallel, micro_batch_size, {}};
    workers_.assign(kinds_.size(), {});
    for (size_t kind = 0; kind < kinds_.size(); ++kind) {
      if (!profiled(kinds_[kind].device)) continue;
      // A worker is a group of `tensor_parallel` devices of a node; devices that are left over stay
      // unused.
      for (const Node& node : inputs_.cluster.nodes) {
        if (!same_kind(node, kinds_[kind])) continue;
        for (int worker = 0; worker < node.devices / tensor_parallel; ++worker)
          workers_[kind].push_back(node.name);
      }
    }
    taken_.assign(kinds_.size(), 0);
    std::vector<int> most;
    for (const auto& workers : workers_) most.push_back(static_cast<int>(workers.size()));
    add_replica(most);
  }

 private:
  // Whether the shape's variant was profiled for all layers on this device kind.
  bool profiled(const std::string& device) const {
    return std::ranges::all_of(inputs_.model.layers, [&](const LayerKind& kind) {
      return kind.parameter_bytes.contains(shape_.tensor_parallel) &&
             inputs_.profile.find({device, kind.name, shape_.tensor_parallel, shape_.micro_batch_size});
    });
  }

  // Appends all replicas whose counts do not exceed `most`, compared kind by kind from the first. `most`
  // are the counts of the replica before.
  void add_replica(const std::vector<int>& most) {
    if (stopped_ || static_cast<int>(shape_.replicas.size()) == most_replicas_) return;
    std::vector<int> counts(kinds_.size(), 0);
    choose_counts(most, 0, true, counts);
  }

  // `equal_so_far`: the counts of the kinds before equal those of `most`, so this one must not be
  // larger.
  void choose_counts(const std::vector<int>& most, size_t kind, bool equal_so_far, std::vector<int>& counts) {
    if (kind == kinds_.size()) {
      order_kinds(counts);
      return;
    }
    int limit = static_cast<int>(workers_[kind].size()) - taken_[kind];
    if (equal_so_far) limit = std::min(limit, most[kind]);
    for (int count = 0; count <= limit && !stopped_; ++count) {
      counts[kind] = count;
      choose_counts(most, kind + 1, equal_so_far && count == most[kind], counts);
    }
    counts[kind] = 0;
  }

  // All orders of the kinds that have workers. Every prefix of the sequence of replicas is a shape of
  // its own, as workers may stay unused.
  void order_kinds(const std::vector<int>& counts) {
    std::vector<int> order;
    int stages = 0;
    for (size_t kind = 0; kind < counts.size(); ++kind) {
      stages += counts[kind];
      if (counts[kind] > 0) order.push_back(static_cast<int>(kind));
    }
    // Each stage needs a layer.
    if (stages == 0 || stages > inputs_.model.num_layers()) return;
    do {
      ReplicaShape replica;
      for (const int kind : order) {
        for (int i = 0; i < counts[kind]; ++i) {
          replica.kinds.push_back(kind);
          replica.nodes.push_back(workers_[kind][taken_[kind] + i]);
        }
      }
      shape_.replicas.push_back(std::move(replica));
      for (size_t kind = 0; kind < counts.size(); ++kind) taken_[kind] += counts[kind];
      stopped_ = stopped_ || !visit_(shape_);
      add_replica(counts);
      for (size_t kind = 0; kind < counts.size(); ++kind) taken_[kind] -= counts[kind];
      shape_.replicas.pop_back();
    } while (!stopped_ && std::ranges::next_permutation(order).found);
  }

  const PredictionInputs& inputs_;
  const std::function<bool(const Shape&)>& visit_;
  const std::vector<Node> kinds_;
  const int most_replicas_;
  std::vector<std::vector<std::string>> workers_;  // by kind: their nodes
  // By kind: the workers that are in `shape_`. The others come after them, in order.
  std::vector<int> taken_;
  Shape shape_;
  bool stopped_ = false;
};

}  // namespace

void for_each_shape(const PredictionInputs& inputs, int most_replicas,
                    const std::function<bool(const Shape&)>& visit) {
  std::set<std::pair<int, int>> profiled;
  for (const auto& [key, cost] : inputs.profile.compute)
    profiled.insert({key.tensor_parallel, key.micro_batch_size});
  ShapeWalk walk(inputs, most_replicas, visit);
  for (const auto& [tensor_parallel, micro_batch_size] : profiled)
    walk.walk(tensor_parallel, micro_batch_size);
}

RangeCosts::RangeCosts(const PredictionInputs& inputs, const std::string& device, int tensor_parallel,
                       int micro_batch_size)
    : before_(1), inputs_before_(1) {
  for (int unit = 0; unit < inputs.model.num_units(); ++unit) {
    const UnitCost cost =
        unit_cost(inputs, device, inputs.model.unit(unit), tensor_parallel, micro_batch_size);
    StageCost sum = before_.back();
    sum.forward += cost.forward;
    sum.backward += cost.backward;
    sum.weight_gradient += cost.weight_gradient;
    sum.update += cost.update;
    sum.parameter_bytes += cost.parameter_bytes;
    sum.activation_bytes += cost.activation_bytes;
    before_.push_back(sum);
    const int64_t input_bytes = unit_input_bytes(inputs.model, unit, micro_batch_size);
    inputs_before_.push_back(inputs_before_.back() + input_bytes);
    if (unit > 0 && unit + 1 < inputs.model.num_units())
      most_saved_ = std::max(most_saved_, cost.activation_bytes - input_bytes);
  }
}

int RangeCosts::layers(int first, int end) const {
  return std::min(end, static_cast<int>(before_.size()) - 2) - std::max(first, 1);
}

StageCost RangeCosts::range(int first, int end, int recomputed) const {
  StageCost cost = range(first, end);
  // The embedding is no layer.
  const int from = std::max(first, 1);
  const int to = from + recomputed;
  cost.backward += before_[to].forward - before_[from].forward;
  cost.activation_bytes += inputs_before_[to] - inputs_before_[from];
  cost.activation_bytes -= before_[to].activation_bytes - before_[from].activation_bytes;
  for (int unit = from; unit < to; ++unit)
    cost.recomputed_bytes =
        std::max(cost.recomputed_bytes, before_[unit + 1].activation_bytes - before_[unit].activation_bytes);
  return cost;
}

StageCost RangeCosts::range(int first, int end) const {
  StageCost cost = before_[end];
  cost.forward -= before_[first].forward;
  cost.backward -= before_[first].backward;
  cost.weight_gradient -= before_[first].weight_gradient;
  cost.update -= before_[first].update;
  cost.parameter_bytes -= before_[first].parameter_bytes;
  cost.activation_bytes -= before_[first].activation_bytes;
  return cost;
}

}  // namespace hdt::plan
