// class_search.cc: from mixes of classes to played plans.
#include "training/plan/search/class_search.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "training/plan/search/placement.h"

namespace hdt::plan {
namespace {

// An estimate may be longer than the played step by this factor, on clusters of up to
// kMostDevicesOfAllLayouts devices.
constexpr double kEstimate = 1.3;
// A mix whose pipelines alone take longer than the best step by this factor is not placed.
constexpr double kPipelines = 1.02;
// Plans that are kept for playing.
constexpr size_t kMostPlans = 64;
// Numbers of stages that are tried each by itself; beyond, those that double.
constexpr size_t kEachLength = 16;
// With more classes, a mix takes so long that the selections by length and another property are left out.
constexpr size_t kManyClasses = 500;

// Replicas come in the order that shapes have (search_space.h): those with the larger key first.
auto order_key(const ReplicaKind& made) {
  return std::tuple(made.tensor_parallel, made.devices, made.micro_batch_size);
}

}  // namespace

ClassSearch::ClassSearch(const PredictionInputs& inputs, const SearchOptions& options, SearchState& state,
                         int fewest_replicas)
    : inputs_(inputs),
      options_(options),
      state_(state),
      fewest_replicas_(fewest_replicas),
      maker_(inputs, options.runtime.schedule, options.recompute,
             options.runtime.use_distributed_optimizer ? 1.0 / fewest_replicas : 1),
      gauge_(inputs, options, state) {}

// Candidates are the shortest mixes of many selections of classes: one search over all classes would
// find only the mix with the best estimate, and estimates leave out reductions.
bool ClassSearch::run() {
  const std::vector<ReplicaKind> all = maker_.all([this] { return state_.out_of_time(); });
  // No class fits memory: find out how much is missing, for the message.
  if (all.empty()) {
    if (!state_.out_of_time()) note_excess();
    return !maker_.variants().empty();
  }
  std::vector<Candidate> candidates;
  // Estimates the shortest mix of the classes that fulfil a condition. An estimate is quick; only the
  // best few are played.
  const auto add = [&](const auto& condition) {
    std::vector<ReplicaKind> classes;
    std::ranges::copy_if(all, std::back_inserter(classes), condition);
    if (!classes.empty() && !state_.out_of_time()) candidates.push_back(shortest_mix(classes));
  };
  add([](const ReplicaKind&) { return true; });
  std::set<int> degrees;
  std::set<int> sizes;
  const auto is_variant = [](const ReplicaKind& made, const std::pair<int, int>& variant) {
    return std::pair(made.tensor_parallel, made.micro_batch_size) == variant;
  };
  for (const auto& variant : maker_.variants()) {
    add([&](const ReplicaKind& made) { return is_variant(made, variant); });
    degrees.insert(variant.first);
    sizes.insert(variant.second);
  }
  for (const int degree : degrees)
    add([&](const ReplicaKind& made) { return made.tensor_parallel == degree; });
  for (const int size : sizes) add([&](const ReplicaKind& made) { return made.micro_batch_size == size; });
  // Every replica goes over several kinds, in one order. Then gradients are reduced inside each kind's
  // network, and only activations pass between the networks.
  for (int first = 0; first < static_cast<int>(maker_.kinds().size()); ++first) {
    add([&](const ReplicaKind& made) { return made.kinds.front() == first && made.kinds.back() != first; });
    for (const auto& variant : maker_.variants()) {
      add([&](const ReplicaKind& made) {
        return made.kinds.front() == first && made.kinds.back() != first && is_variant(made, variant);
      });
    }
  }
  // Short pipelines have more replicas to reduce over, and less to fill.
  for (const size_t most : {1, 2, 4, 8})
    add([&](const ReplicaKind& made) { return made.kinds.size() <= most; });
  add([](const ReplicaKind& made) { return made.kinds.size() == 2 && made.kinds[0] != made.kinds[1]; });
  std::set<size_t> lengths;
  for (const ReplicaKind& made : all) lengths.insert(made.kinds.size());
  for (const size_t length : lengths) {
    if (length > kEachLength && (length & (length - 1)) != 0) continue;
    add([&](const ReplicaKind& made) { return made.kinds.size() == length; });
    if (all.size() > kManyClasses) continue;
    // Every replica inside one kind, so that no activation passes between kinds.
    add([&](const ReplicaKind& made) {
      return made.kinds.size() == length && made.kinds.front() == made.kinds.back();
    });
    for (const int size : sizes)
      add([&](const ReplicaKind& made) {
        return made.kinds.size() == length && made.micro_batch_size == size;
      });
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::seconds);
  Candidates pool(inputs_, options_, state_, gauge_,
                  static_cast<size_t>(plays_on(inputs_.cluster, kMostPlans)));
  for (const Candidate& candidate : candidates) {
    if (candidate.seconds >= kPipelines * state_.best_seconds || state_.out_of_time()) break;
    place(candidate.uses, pool);
  }
  pool.play(num_devices(inputs_.cluster) > kMostDevicesOfAllLayouts ? 1 : kEstimate);
  return true;
}

// Doubles the length of the step until a mix can process the global batch, then bisects between the last
// two lengths. A fast replica alone with one micro-batch is the start.
ClassSearch::Candidate ClassSearch::shortest_mix(const std::vector<ReplicaKind>& classes) const {
  double high = std::numeric_limits<double>::infinity();
  for (const ReplicaKind& made : classes) high = std::min(high, made.fill + made.period);
  ClassMix mix = mix_classes(classes, maker_.devices(), high);
  while (mix.samples < options_.global_batch_size) {
    high *= 2;
    mix = mix_classes(classes, maker_.devices(), high);
  }
  constexpr double kPrecision = 1e-4;
  for (double low = high / 2; high - low > kPrecision * high;) {
    const double middle = (low + high) / 2;
    ClassMix shorter = mix_classes(classes, maker_.devices(), middle);
    if (shorter.samples < options_.global_batch_size) {
      low = middle;
    } else {
      mix = std::move(shorter);
      high = middle;
    }
  }
  Uses uses;
  for (size_t c = 0; c < classes.size(); ++c) {
    if (mix.replicas[c] > 0) uses.push_back({classes[c], mix.replicas[c]});
  }
  std::ranges::sort(uses, std::greater<>(), [](const Use& use) { return order_key(use.made); });
  return {std::move(uses), high};
}

Plan ClassSearch::plan_of(const Uses& uses, std::vector<std::vector<int>>& kinds) const {
  std::vector<const ReplicaKind*> made;
  for (const Use& use : uses) made.insert(made.end(), use.replicas, &use.made);
  // Too many replicas: keep those with the best rate, in the order that they had.
  if (static_cast<int>(made.size()) > options_.most_replicas) {
    std::ranges::stable_sort(made, {},
                             [](const ReplicaKind* one) { return one->period / one->micro_batch_size; });
    made.resize(options_.most_replicas);
    std::ranges::stable_sort(made, std::greater<>(), [](const ReplicaKind* one) { return order_key(*one); });
  }
  Plan plan;
  plan.runtime = options_.runtime;
  for (const ReplicaKind* one : made) {
    plan.replicas.push_back({one->micro_batch_size, 1, {}});
    for (const int layers : one->layers)
      plan.replicas.back().stages.push_back({layers, "", one->tensor_parallel});
    kinds.push_back(one->kinds);
  }
  return plan;
}

// The devices are there, as the mix has counted them; but a node may have a rest that is too small for a
// group. Replicas that get no micro-batch leave the plan, and their devices stay unused.
void ClassSearch::place(const Uses& uses, Candidates& pool) {
  std::vector<std::vector<int>> kinds;
  const Plan mix = plan_of(uses, kinds);
  for (const PlacementRule rule : kPlacementRules) {
    Plan plan = mix;
    if (Placement(inputs_.cluster).place(rule, kinds, plan) && gauge_.share_out(plan) &&
        static_cast<int>(plan.replicas.size()) >= fewest_replicas_)
      pool.add(std::move(plan));
  }
}

// Looks at all sequences that all() has tried.
void ClassSearch::note_excess() {
  for (const std::pair<int, int>& variant : maker_.variants()) {
    for (const bool three_or_more : {false, true}) {
      maker_.for_each_sequence(variant, three_or_more, [&](const std::vector<int>& kinds) {
        const double excess = maker_.least_excess(variant, kinds);
        if (excess >= state_.least_excess) return;
        state_.least_excess = excess;
        state_.excess_device = maker_.kinds()[kinds.front()].kind();
      });
    }
  }
}

}  // namespace hdt::plan
