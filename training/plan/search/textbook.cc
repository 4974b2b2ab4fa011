// textbook.cc: all combinations of rows, arrangements, depths, sizes and splits.
#include "training/plan/search/textbook.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "training/plan/search/replica_kind.h"

namespace hdt::plan {
namespace {

// Longer pipelines spend more time on filling than their shorter stages save.
constexpr int kDeepest = 64;
// All orders of so many kinds are tried; of more kinds, that of the cluster and its opposite.
constexpr size_t kMostOrderedKinds = 3;
// On larger clusters numbers of stages double.
constexpr size_t kManyWorkers = 256;
// With sharded optimizer states: the part of them that a balanced split counts with, before the number of
// replicas is known.
constexpr double kSharedStates = .125;

// A place for a stage: a node, by index; it is there once for each group of devices that it has room for.
using Row = std::vector<int>;
// By replica: the nodes of its stages.
using Arrangement = std::vector<Row>;

// Goes through all layouts of one search.
class Textbook {
 public:
  Textbook(const PredictionInputs& inputs, const SearchOptions& options, PlanGauge& gauge,
           const std::function<bool(Plan)>& visit)
      : inputs_(inputs),
        options_(options),
        gauge_(gauge),
        visit_(visit),
        maker_(inputs, options.runtime.schedule, options.recompute,
               options.runtime.use_distributed_optimizer ? kSharedStates : 1) {
    for (const Node& node : inputs.cluster.nodes)
      kind_of_.push_back(static_cast<int>(kind_index(maker_.kinds(), node)));
  }

  void run() {
    for (const std::pair<int, int>& variant : maker_.variants()) {
      variant_ = variant;
      for (const Row& row : rows()) {
        for (const int stages : depths(row)) {
          seen_.clear();
          for (Arrangement& made : arrangements(row, stages)) arrange(std::move(made));
          if (stopped_) return;
        }
      }
    }
  }

 private:
  // The workers of the nodes whose kinds are in `kinds`, by kind in that order.
  Row row_of(const std::vector<int>& kinds) const {
    Row row;
    for (const int kind : kinds) {
      for (size_t node = 0; node < kind_of_.size(); ++node) {
        if (kind_of_[node] == kind)
          row.insert(row.end(), inputs_.cluster.nodes[node].devices / variant_.first, static_cast<int>(node));
      }
    }
    return row;
  }

  std::vector<Row> rows() const {
    std::vector<int> kinds;
    for (int kind = 0; kind < static_cast<int>(maker_.kinds().size()); ++kind) {
      if (maker_.profiled(kind, variant_)) kinds.push_back(kind);
    }
    std::vector<Row> all;
    const auto add = [&](Row row) {
      if (!row.empty() && std::ranges::find(all, row) == all.end()) all.push_back(std::move(row));
    };
    Row by_node;
    for (size_t node = 0; node < kind_of_.size(); ++node) {
      if (std::ranges::count(kinds, kind_of_[node]) > 0)
        by_node.insert(by_node.end(), inputs_.cluster.nodes[node].devices / variant_.first,
                       static_cast<int>(node));
    }
    add(std::move(by_node));
    if (kinds.size() <= kMostOrderedKinds) {
      std::vector<int> order = kinds;
      do {
        add(row_of(order));
      } while (std::ranges::next_permutation(order).found);
    } else {
      add(row_of(kinds));
      add(row_of({kinds.rbegin(), kinds.rend()}));
    }
    // The mixes of class_search.h have these for large clusters.
    for (const int kind : kinds) {
      if (all.front().size() < kManyWorkers) add(row_of({kind}));
    }
    return all;
  }

  std::vector<int> depths(const Row& row) const {
    const int most = std::min({inputs_.model.num_layers(), static_cast<int>(row.size()), kDeepest});
    std::set<int> depths;
    std::set<int> nodes(row.begin(), row.end());
    for (int stages = 1; stages <= most; ++stages) {
      const bool of_a_node =
          stages == inputs_.cluster.nodes[static_cast<size_t>(row.front())].devices / variant_.first ||
          stages == static_cast<int>(nodes.size());
      if (row.size() < kManyWorkers || of_a_node || (stages & (stages - 1)) == 0) depths.insert(stages);
    }
    return {depths.begin(), depths.end()};
  }

  // Replicas of neighbours in the row; a rest that is too short for one stays unused.
  static void cut(const Row& row, int stages, Arrangement& made) {
    for (size_t first = 0; first + stages <= row.size(); first += stages)
      made.emplace_back(row.begin() + static_cast<int64_t>(first),
                        row.begin() + static_cast<int64_t>(first + stages));
  }

  // The first devices of the row, `replicas` for each stage.
  static Arrangement stage_by_stage(const Row& row, int stages, size_t replicas) {
    Arrangement made(replicas);
    for (int s = 0; s < stages; ++s) {
      for (size_t r = 0; r < replicas; ++r) made[r].push_back(row[static_cast<size_t>(s) * replicas + r]);
    }
    return made;
  }

  // Consecutive places of the row that are equal by `same`.
  template <typename Same>
  static std::vector<Row> parts(const Row& row, Same same) {
    std::vector<Row> parts;
    for (const int node : row) {
      if (parts.empty() || !same(parts.back().back(), node)) parts.emplace_back();
      parts.back().push_back(node);
    }
    return parts;
  }

  std::vector<Arrangement> arrangements(const Row& row, int stages) const {
    std::vector<Arrangement> all;
    cut(row, stages, all.emplace_back());
    all.push_back(stage_by_stage(row, stages, row.size() / static_cast<size_t>(stages)));
    const std::vector<Row> nodes = parts(row, [](int a, int b) { return a == b; });
    Arrangement& across = all.emplace_back();
    for (size_t first = 0; first + stages <= nodes.size(); first += stages) {
      size_t replicas = std::numeric_limits<size_t>::max();
      for (int s = 0; s < stages; ++s) replicas = std::min(replicas, nodes[first + s].size());
      for (size_t r = 0; r < replicas; ++r) {
        across.emplace_back();
        for (int s = 0; s < stages; ++s) across.back().push_back(nodes[first + s][0]);
      }
    }
    Arrangement& inside_nodes = all.emplace_back();
    for (const Row& node : nodes) cut(node, stages, inside_nodes);
    const auto one_kind = [this](int a, int b) {
      return kind_of_[static_cast<size_t>(a)] == kind_of_[static_cast<size_t>(b)];
    };
    Arrangement inside_kinds;
    Arrangement by_stage;
    for (const Row& kind : parts(row, one_kind)) {
      cut(kind, stages, inside_kinds);
      std::ranges::copy(stage_by_stage(kind, stages, kind.size() / static_cast<size_t>(stages)),
                        std::back_inserter(by_stage));
    }
    all.push_back(std::move(inside_kinds));
    all.push_back(std::move(by_stage));
    return all;
  }

  // As it is, and with as many of its replicas as share the batch equally.
  void arrange(Arrangement made) {
    const int64_t micro_batches = options_.global_batch_size / variant_.second;
    if (made.empty() || options_.global_batch_size % variant_.second != 0) return;
    auto most = static_cast<size_t>(std::min<int64_t>(options_.most_replicas, micro_batches));
    made.resize(std::min(made.size(), most));
    if (made.empty()) return;
    size_t equal = made.size();
    while (micro_batches % static_cast<int64_t>(equal) != 0) --equal;
    if (equal < made.size()) {
      Arrangement fewer(made.begin(), made.begin() + static_cast<int64_t>(equal));
      if (!stopped_ && seen_.insert(fewer).second) cut_layers(fewer);
    }
    if (!stopped_ && seen_.insert(made).second) cut_layers(made);
  }

  // The layers of each stage, for a replica on nodes of these kinds; nothing where the split makes no sense.
  enum class Split { kEven, kLightEnds, kBySpeed, kBalanced };
  const std::vector<int>& split(const std::vector<int>& kinds, Split rule) {
    const auto [known, added] = splits_.try_emplace({kinds, variant_, rule}, std::vector<int>{});
    if (added) known->second = make_split(kinds, rule);
    return known->second;
  }
  std::vector<int> make_split(const std::vector<int>& kinds, Split rule) const {
    const int layers = inputs_.model.num_layers();
    const auto stages = static_cast<int>(kinds.size());
    std::vector<int> split(kinds.size(), 0);
    switch (rule) {
      case Split::kEven:
        for (int s = 0; s < stages; ++s) split[s] = layers / stages + (s < layers % stages ? 1 : 0);
        break;
      case Split::kLightEnds: {
        // Embedding and head count as a layer each, and what is left over goes to the stages in the middle.
        if (stages < 2) return {};
        const int all = layers + 2;
        const int rest = all % stages;
        const int from = (stages - rest) / 2;
        for (int s = 0; s < stages; ++s)
          split[s] = all / stages + (s >= from && s < from + rest ? 1 : 0) - (s == 0) - (s == stages - 1);
        break;
      }
      case Split::kBySpeed:
        split = by_speed(kinds);
        break;
      case Split::kBalanced:
        if (const auto made = maker_.make(variant_, kinds)) return made->layers;
        return {};
    }
    return std::ranges::all_of(split, [](int count) { return count > 0; }) ? split : std::vector<int>{};
  }
  // Each next layer goes to the stage that is done first with it; each stage has one.
  std::vector<int> by_speed(const std::vector<int>& kinds) const {
    std::vector<double> seconds;
    for (const int kind : kinds) {
      const LayerCost& cost = *inputs_.profile.find(
          {maker_.kinds()[kind].device, inputs_.model.layers[1].name, variant_.first, variant_.second});
      seconds.push_back(cost.forward + cost.backward());
    }
    std::vector<int> split(kinds.size(), 1);
    for (int left = inputs_.model.num_layers() - static_cast<int>(kinds.size()); left > 0; --left) {
      size_t first = 0;
      for (size_t s = 1; s < split.size(); ++s) {
        if ((split[s] + 1) * seconds[s] < (split[first] + 1) * seconds[first]) first = s;
      }
      ++split[first];
    }
    return split;
  }

  void cut_layers(const Arrangement& made) {
    std::set<std::vector<std::vector<int>>> tried;
    for (const Split rule : {Split::kBalanced, Split::kEven, Split::kLightEnds, Split::kBySpeed}) {
      if (made.size() * made.front().size() >= kManyWorkers && rule == Split::kLightEnds) break;
      std::vector<std::vector<int>> splits;
      for (const Row& replica : made) {
        std::vector<int> kinds;
        for (const int node : replica) kinds.push_back(kind_of_[static_cast<size_t>(node)]);
        splits.push_back(split(kinds, rule));
        if (splits.back().empty()) break;
      }
      if (splits.empty() || splits.back().empty() || !tried.insert(splits).second) continue;
      Plan plan;
      plan.runtime = options_.runtime;
      for (size_t r = 0; r < made.size(); ++r) {
        plan.replicas.push_back({variant_.second, 1, {}});
        for (size_t s = 0; s < made[r].size(); ++s) {
          plan.replicas.back().stages.push_back(
              {splits[r][s], inputs_.cluster.nodes[static_cast<size_t>(made[r][s])].name, variant_.first});
        }
      }
      show(std::move(plan));
      if (stopped_) return;
    }
  }

  void show(Plan plan) {
    const auto samples = static_cast<int64_t>(plan.replicas.size()) * variant_.second;
    const auto many = static_cast<int64_t>(kManyWorkers) * variant_.second;
    Plan equal = plan;
    if (gauge_.share_out(plan) && !visit_(plan)) stopped_ = true;
    if (stopped_ || options_.global_batch_size % samples != 0 || samples >= many) return;
    for (Replica& replica : equal.replicas)
      replica.micro_batches = static_cast<int>(options_.global_batch_size / samples);
    if (equal != plan && !visit_(std::move(equal))) stopped_ = true;
  }

  const PredictionInputs& inputs_;
  const SearchOptions& options_;
  PlanGauge& gauge_;
  const std::function<bool(Plan)>& visit_;
  const ClassMaker maker_;
  std::vector<int> kind_of_;  // by node
  std::pair<int, int> variant_;
  std::set<Arrangement> seen_;  // of the row and the number of stages
  std::map<std::tuple<std::vector<int>, std::pair<int, int>, Split>, std::vector<int>> splits_;
  bool stopped_ = false;
};

}  // namespace

void for_each_textbook_plan(const PredictionInputs& inputs, const SearchOptions& options, PlanGauge& gauge,
                            const std::function<bool(Plan)>& visit) {
  Textbook(inputs, options, gauge, visit).run();
}

}  // namespace hdt::plan
