// search_space.cc: enumerates the shapes depth first, and sums up costs.
#include "training/plan/search/search_space.h"

#include <algorithm>
#include <map>
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
    shape_ = {tensor_parallel, {}};
    micro_batch_size_ = micro_batch_size;
    workers_.assign(kinds_.size(), {});
    for (size_t kind = 0; kind < kinds_.size(); ++kind) {
      if (!is_profiled(inputs_, kinds_[kind].device, shape_.tensor_parallel, micro_batch_size_)) continue;
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
      replica.micro_batch_size = micro_batch_size_;
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
  int micro_batch_size_ = 1;
  bool stopped_ = false;
};

// One walk through all shapes of one degree, replica by replica. Replicas are in falling order of
// (micro-batch size, nodes), as other orders are the same plan.
class OrderWalk {
 public:
  OrderWalk(const PredictionInputs& inputs, int most_replicas, const std::function<bool(const Shape&)>& visit)
      : inputs_(inputs), visit_(visit), kinds_(inputs.cluster.node_kinds()), most_replicas_(most_replicas) {
    const std::vector<Node>& nodes = inputs.cluster.nodes;
    for (size_t a = 0; a < nodes.size(); ++a) {
      kind_of_.push_back(static_cast<int>(kind_index(kinds_, nodes[a])));
      for (size_t b = 0; b < a; ++b) {
        if (same_kind(nodes[a], nodes[b]) && nodes[a].devices == nodes[b].devices &&
            nodes[a].memory_bytes == nodes[b].memory_bytes)
          alike_.emplace_back(static_cast<int>(b), static_cast<int>(a));
      }
    }
  }

  // All shapes of a degree; `sizes` are its micro-batch sizes.
  void walk(int tensor_parallel, const std::vector<int>& sizes) {
    tensor_parallel_ = tensor_parallel;
    sizes_ = sizes;
    free_.clear();
    for (const Node& node : inputs_.cluster.nodes) free_.push_back(node.devices / tensor_parallel);
    add_replica();
  }

 private:
  // A micro-batch size and the nodes of the stages, as indices.
  using Made = std::pair<int, std::vector<int>>;

  void add_replica() {
    if (stopped_ || static_cast<int>(made_.size()) == most_replicas_) return;
    for (const int size : sizes_) {
      if (!made_.empty() && size > made_.back().first) break;
      made_.push_back({size, {}});
      add_stage();
      made_.pop_back();
    }
  }

  // Appends each free worker to the last replica; each of these is a shape, and may go on with another
  // replica.
  void add_stage() {
    const size_t last = made_.size() - 1;
    if (static_cast<int>(made_[last].second.size()) == inputs_.model.num_layers()) return;
    for (int node = 0; node < static_cast<int>(free_.size()) && !stopped_; ++node) {
      if (free_[static_cast<size_t>(node)] == 0 || !profiled(node, made_[last].first)) continue;
      made_[last].second.push_back(node);
      --free_[static_cast<size_t>(node)];
      // A replica that is longer than the one before and begins like it comes first.
      if (last == 0 || made_[last] <= made_[last - 1]) {
        show();
        add_replica();
      }
      if (last == 0 || began_not_later()) add_stage();
      ++free_[static_cast<size_t>(node)];
      made_[last].second.pop_back();
    }
  }

  // Whether the last replica may still become one that is not behind the one before: it gets larger with each
  // stage.
  bool began_not_later() const { return made_.back() <= made_[made_.size() - 2]; }

  bool profiled(int node, int size) const {
    const std::string& device = inputs_.cluster.nodes[static_cast<size_t>(node)].device;
    return is_profiled(inputs_, device, tensor_parallel_, size);
  }

  // Among the shapes that become each other by exchanging nodes that are alike, the largest is always
  // visited.
  void show() {
    for (const auto& [a, b] : alike_) {
      std::vector<Made> exchanged = made_;
      for (Made& replica : exchanged) {
        for (int& node : replica.second) node = node == a ? b : node == b ? a : node;
      }
      std::ranges::sort(exchanged, std::greater<>());
      if (exchanged > made_) return;
    }
    Shape shape{tensor_parallel_, {}};
    for (const auto& [size, nodes] : made_) {
      ReplicaShape replica;
      replica.micro_batch_size = size;
      for (const int node : nodes) {
        replica.nodes.push_back(inputs_.cluster.nodes[static_cast<size_t>(node)].name);
        replica.kinds.push_back(kind_of_[static_cast<size_t>(node)]);
      }
      shape.replicas.push_back(std::move(replica));
    }
    stopped_ = !visit_(shape);
  }

  const PredictionInputs& inputs_;
  const std::function<bool(const Shape&)>& visit_;
  const std::vector<Node> kinds_;
  const int most_replicas_;
  std::vector<int> kind_of_;                // by node
  std::vector<std::pair<int, int>> alike_;  // nodes that are alike
  int tensor_parallel_ = 1;
  std::vector<int> sizes_;  // increasing
  std::vector<int> free_;   // by node: workers that no replica has
  std::vector<Made> made_;
  bool stopped_ = false;
};

}  // namespace

bool is_profiled(const PredictionInputs& inputs, const std::string& device, int tensor_parallel,
                 int micro_batch_size) {
  return std::ranges::all_of(inputs.model.layers, [&](const LayerKind& kind) {
    return kind.parameter_bytes.contains(tensor_parallel) &&
           inputs.profile.find({device, kind.name, tensor_parallel, micro_batch_size});
  });
}

int64_t num_devices(const Cluster& cluster) {
  int64_t devices = 0;
  for (const Node& node : cluster.nodes) devices += node.devices;
  return devices;
}

int64_t plays_on(const Cluster& cluster, int64_t most) {
  constexpr int64_t kDevices = 2500;
  return std::max<int64_t>(4, most * kDevices / std::max(kDevices, num_devices(cluster)));
}

void for_each_order(const PredictionInputs& inputs, int most_replicas,
                    const std::function<bool(const Shape&)>& visit) {
  std::map<int, std::set<int>> sizes;  // by degree
  for (const auto& [key, cost] : inputs.profile.compute)
    sizes[key.tensor_parallel].insert(key.micro_batch_size);
  OrderWalk walk(inputs, most_replicas, visit);
  for (const auto& [degree, all] : sizes) walk.walk(degree, {all.begin(), all.end()});
}

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
    : before_(1),
      inputs_before_(1),
      has_attention_(
          has_recomputed_attention(inputs.profile, inputs.model, device, tensor_parallel, micro_batch_size)),
      attention_before_(1) {
  // Not a sum: every range has it once.
  before_.front().fixed_bytes = inputs.profile.fixed_bytes_of(device);
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
    if (inputs.model.has_tied_unit() && unit + 1 == inputs.model.num_units()) {
      tied_bytes_ = inputs.model.tied_parameter_bytes.at(tensor_parallel);
      tied_update_ =
          cost.update * static_cast<double>(tied_bytes_) / static_cast<double>(cost.parameter_bytes);
    }
    const int64_t input_bytes = unit_input_bytes(inputs.model, unit, micro_batch_size);
    inputs_before_.push_back(inputs_before_.back() + input_bytes);
    RecomputedAttention attention = attention_before_.back();
    if (unit > 0 && unit + 1 < inputs.model.num_units()) {
      most_saved_ = std::max(most_saved_, cost.activation_bytes - input_bytes);
      if (has_attention_) {
        attention.more_seconds += cost.recomputed_attention->more_seconds;
        attention.activation_bytes += cost.recomputed_attention->activation_bytes;
        most_saved_of_attention_ = std::max(
            most_saved_of_attention_, cost.activation_bytes - cost.recomputed_attention->activation_bytes);
      }
    }
    attention_before_.push_back(attention);
  }
}

int RangeCosts::layers(int first, int end) const {
  return std::min(end, static_cast<int>(before_.size()) - 2) - std::max(first, 1);
}

StageCost RangeCosts::range(int first, int end, int recomputed, bool attention_only) const {
  StageCost cost = range(first, end);
  // The embedding is no layer.
  const int from = std::max(first, 1);
  const int to = from + recomputed;
  const auto kept_beside_attention = [&](int begin, int behind) {
    return attention_before_[behind].activation_bytes - attention_before_[begin].activation_bytes;
  };
  cost.activation_bytes -= before_[to].activation_bytes - before_[from].activation_bytes;
  if (attention_only) {
    cost.backward += attention_before_[to].more_seconds - attention_before_[from].more_seconds;
    cost.activation_bytes += kept_beside_attention(from, to);
  } else {
    cost.backward += before_[to].forward - before_[from].forward;
    cost.activation_bytes += inputs_before_[to] - inputs_before_[from];
  }
  for (int unit = from; unit < to; ++unit) {
    int64_t again = before_[unit + 1].activation_bytes - before_[unit].activation_bytes;
    if (attention_only) again -= kept_beside_attention(unit, unit + 1);
    cost.recomputed_bytes = std::max(cost.recomputed_bytes, again);
  }
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
  if (first == 0 && end + 1 == static_cast<int>(before_.size())) {
    cost.update -= tied_update_;
    cost.parameter_bytes -= tied_bytes_;
  }
  return cost;
}

}  // namespace hdt::plan
