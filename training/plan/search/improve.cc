// improve.cc: the changes, in rounds.
#include "training/plan/search/improve.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "training/plan/search/placement.h"
#include "training/plan/search/replica_orders.h"

namespace hdt::plan {
namespace {

// With so many replicas or fewer, each is changed by itself as well.
constexpr size_t kFewReplicas = 12;
// With so many workers or fewer, all pairs of stages exchange their places.
constexpr size_t kFewWorkers = 16;
// Seconds of less than this part are no improvement: rounding must not keep the search going.
constexpr double kLeastGain = 1e-9;

}  // namespace

Improvement::Improvement(const PredictionInputs& inputs, const SearchOptions& options,
                         std::vector<ScheduleKind> schedules, SearchState& state, PlanGauge& gauge,
                         int64_t most_plays)
    : inputs_(inputs),
      options_(options),
      schedules_(std::move(schedules)),
      state_(state),
      gauge_(gauge),
      most_plays_(most_plays) {}

void Improvement::climb(Plan start, double seconds) {
  plan_ = std::move(start);
  seconds_ = seconds;
  plays_ = 0;
  for (bool better = true; better && !over();) {
    better = change_schedule();
    better = place_anew() || better;
    better = exchange_replicas() || better;
    better = move_layers() || better;
    better = move_micro_batches() || better;
    better = change_sizes() || better;
    better = exchange_stages() || better;
    better = join_and_divide() || better;
    better = leave_out() || better;
  }
}

std::vector<Improvement::Group> Improvement::groups() const {
  std::map<std::vector<int>, Group> alike;
  for (size_t r = 0; r < plan_.replicas.size(); ++r) {
    const Replica& replica = plan_.replicas[r];
    std::vector<int> key = {replica.micro_batch_size};
    for (const Stage& stage : replica.stages)
      key.insert(key.end(), {gauge_.kind_of(stage), stage.layers, stage.tensor_parallel});
    alike[key].push_back(r);
  }
  std::vector<Group> groups;
  for (auto& [key, group] : alike) groups.push_back(std::move(group));
  if (plan_.replicas.size() > kFewReplicas) return groups;
  for (size_t r = 0; r < plan_.replicas.size(); ++r) {
    if (std::ranges::find(groups, Group{r}) == groups.end()) groups.push_back({r});
  }
  return groups;
}

bool Improvement::try_plan(Plan plan) {
  if (over() || plan == plan_ || !gauge_.fit(plan) || gauge_.bound(plan) >= seconds_) return false;
  ++plays_;
  const auto seconds = state_.play(inputs_, options_, plan);
  if (!seconds || *seconds >= seconds_ * (1 - kLeastGain)) return false;
  plan_ = std::move(plan);
  seconds_ = *seconds;
  return true;
}

bool Improvement::try_shared(Plan plan) {
  return !over() && gauge_.share_out(plan) && try_plan(std::move(plan));
}

// Moves between any two stages on short pipelines, and between neighbours on long ones.
bool Improvement::move_layers() {
  constexpr int kShort = 8;
  bool better = false;
  const size_t replicas = plan_.replicas.size();
  for (const Group& group : groups()) {
    const auto stages = static_cast<int>(plan_.replicas[group.front()].stages.size());
    for (int from = 0; from < stages; ++from) {
      for (int to = 0; to < stages; ++to) {
        if (from == to || (stages > kShort && std::abs(from - to) > 1)) continue;
        // As often as it helps.
        for (bool again = true; again;) {
          Plan plan = plan_;
          if (plan.replicas[group.front()].stages[from].layers == 1) break;
          for (const size_t r : group) {
            --plan.replicas[r].stages[from].layers;
            ++plan.replicas[r].stages[to].layers;
          }
          Plan shared = plan;
          again = try_plan(std::move(plan)) || (group.size() == 1 && try_shared(std::move(shared)));
          // A replica that gets no micro-batch leaves the plan, and the groups are no more.
          if (plan_.replicas.size() != replicas) return true;
          better = better || again;
        }
      }
    }
  }
  return better;
}

// From a replica of one group to one of another: as many as make up the same samples.
bool Improvement::move_micro_batches() {
  bool better = false;
  const std::vector<Group> all = groups();
  constexpr size_t kMostGroups = 16;
  if (all.size() > kMostGroups) return try_shared(plan_);
  for (const Group& from : all) {
    for (const Group& to : all) {
      if (&from == &to) continue;
      for (bool again = true; again;) {
        Plan plan = plan_;
        const auto count = [&](size_t r) { return plan.replicas[r].micro_batches; };
        Replica& giver = plan.replicas[*std::ranges::max_element(from, {}, count)];
        Replica& taker = plan.replicas[*std::ranges::min_element(to, {}, count)];
        again = false;
        if (&giver == &taker) break;
        const int samples = std::lcm(giver.micro_batch_size, taker.micro_batch_size);
        if (giver.micro_batches * giver.micro_batch_size <= samples) break;
        giver.micro_batches -= samples / giver.micro_batch_size;
        taker.micro_batches += samples / taker.micro_batch_size;
        again = try_plan(std::move(plan));
        better = better || again;
      }
    }
  }
  return try_shared(plan_) || better;
}

bool Improvement::change_sizes() {
  std::set<int> sizes;
  for (const auto& [key, cost] : inputs_.profile.compute) sizes.insert(key.micro_batch_size);
  bool better = false;
  const size_t replicas = plan_.replicas.size();
  for (const Group& group : groups()) {
    for (const int size : sizes) {
      Plan plan = plan_;
      for (const size_t r : group) plan.replicas[r].micro_batch_size = size;
      better = try_shared(std::move(plan)) || better;
      if (plan_.replicas.size() != replicas) return true;  // as in move_layers()
    }
  }
  for (const int size : sizes) {
    Plan plan = plan_;
    for (Replica& replica : plan.replicas) replica.micro_batch_size = size;
    better = try_shared(std::move(plan)) || better;
  }
  return better;
}

bool Improvement::place_anew() {
  bool better = false;
  std::vector<std::vector<int>> kinds;
  for (const Replica& replica : plan_.replicas) {
    kinds.emplace_back();
    for (const Stage& stage : replica.stages) kinds.back().push_back(gauge_.kind_of(stage));
  }
  for (const PlacementRule rule : kPlacementRules) {
    Plan plan = plan_;
    if (Placement(inputs_.cluster).place(rule, kinds, plan)) better = try_plan(std::move(plan)) || better;
  }
  return better;
}

// In all replicas of a group; on small clusters between any two replicas.
bool Improvement::exchange_stages() {
  bool better = false;
  constexpr size_t kShort = 8;
  for (const Group& group : groups()) {
    const size_t stages = plan_.replicas[group.front()].stages.size();
    if (stages > kShort) continue;
    for (size_t a = 0; a < stages; ++a) {
      for (size_t b = 0; b < a; ++b) {
        Plan plan = plan_;
        for (const size_t r : group) std::swap(plan.replicas[r].stages[a], plan.replicas[r].stages[b]);
        better = try_plan(std::move(plan)) || better;
        plan = plan_;
        for (const size_t r : group)
          std::swap(plan.replicas[r].stages[a].node, plan.replicas[r].stages[b].node);
        better = try_plan(std::move(plan)) || better;
      }
    }
  }
  std::vector<std::pair<size_t, size_t>> workers;
  for (size_t r = 0; r < plan_.replicas.size(); ++r) {
    for (size_t s = 0; s < plan_.replicas[r].stages.size(); ++s) workers.emplace_back(r, s);
  }
  if (workers.size() > kFewWorkers) return better;
  for (const auto& [r, s] : workers) {
    for (const auto& [other, t] : workers) {
      if (r <= other) break;
      if (plan_.replicas[r].stages[s].node == plan_.replicas[other].stages[t].node) continue;
      Plan plan = plan_;
      std::swap(plan.replicas[r].stages[s].node, plan.replicas[other].stages[t].node);
      better = try_plan(std::move(plan)) || better;
    }
  }
  return better;
}

// First all replicas in the order of their nodes, then, if there are few, each two of them.
bool Improvement::exchange_replicas() {
  std::vector<int> order = order_of_rings(inputs_, plan_);
  if (order.empty()) return false;
  bool better = false;
  const auto try_order = [&](Plan plan) {
    std::vector<int> other = order_of_rings(inputs_, plan);
    if (other == order || !try_plan(std::move(plan))) return;
    order = std::move(other);
    better = true;
  };
  const auto nodes = [&](const Replica& replica) {
    std::vector<std::pair<int, int>> of_stages;
    for (const Stage& stage : replica.stages)
      of_stages.emplace_back(gauge_.kind_of(stage), gauge_.node_of(stage));
    return of_stages;
  };
  Plan sorted = plan_;
  std::ranges::stable_sort(sorted.replicas, {}, nodes);
  try_order(std::move(sorted));
  if (plan_.replicas.size() > kFewReplicas) return better;
  for (size_t a = 0; a < plan_.replicas.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      Plan plan = plan_;
      std::swap(plan.replicas[a], plan.replicas[b]);
      try_order(std::move(plan));
    }
  }
  return better;
}

// Layers go in proportion: a joined pipeline halves those of each stage, a divided one doubles them.
bool Improvement::join_and_divide() {
  if (plan_.replicas.size() > kFewReplicas) return false;
  const int layers = inputs_.model.num_layers();
  const auto even = [&](Replica& replica) {
    const auto stages = static_cast<int>(replica.stages.size());
    for (int s = 0; s < stages; ++s)
      replica.stages[static_cast<size_t>(s)].layers = layers / stages + (s < layers % stages ? 1 : 0);
  };
  for (size_t a = 0; a < plan_.replicas.size(); ++a) {
    const size_t stages = plan_.replicas[a].stages.size();
    for (size_t cut = 1; cut < stages; ++cut) {
      Plan plan = plan_;
      Replica second = plan.replicas[a];
      plan.replicas[a].stages.resize(cut);
      second.stages.erase(second.stages.begin(), second.stages.begin() + static_cast<int64_t>(cut));
      even(plan.replicas[a]);
      even(second);
      plan.replicas.push_back(std::move(second));
      if (static_cast<int>(plan.replicas.size()) > options_.most_replicas) break;
      if (try_shared(std::move(plan))) return true;
    }
    for (size_t b = 0; b < plan_.replicas.size(); ++b) {
      if (a == b) continue;
      Plan plan = plan_;
      std::vector<Stage>& joined = plan.replicas[a].stages;
      std::ranges::copy(plan.replicas[b].stages, std::back_inserter(joined));
      if (static_cast<int>(joined.size()) > layers) continue;
      even(plan.replicas[a]);
      plan.replicas.erase(plan.replicas.begin() + static_cast<int64_t>(b));
      if (try_shared(std::move(plan))) return true;
    }
  }
  return false;
}

bool Improvement::leave_out() {
  if (plan_.replicas.size() > kFewReplicas) return false;
  bool better = false;
  for (size_t r = 0; r < plan_.replicas.size() && plan_.replicas.size() > 1; ++r) {
    Plan plan = plan_;
    plan.replicas.erase(plan.replicas.begin() + static_cast<int64_t>(r));
    better = try_shared(std::move(plan)) || better;
  }
  return better;
}

bool Improvement::change_schedule() {
  bool better = false;
  for (const ScheduleKind schedule : schedules_) {
    Plan plan = plan_;
    plan.runtime.schedule = schedule;
    better = try_plan(std::move(plan)) || better;
  }
  return better;
}

}  // namespace hdt::plan
