// class_search.cc: from mixes of classes to played plans.
#include "training/plan/search/class_search.h"

#include <algorithm>
#include <queue>
#include <set>
#include <tuple>

#include "training/plan/predict/predictor.h"
#include "training/plan/search/placement.h"

namespace hdt::plan {
namespace {

// The maximum number of steps that are played to improve the best mix.
constexpr int kMostImprovements = 300;

// An estimate may be longer than the played step by this factor.
constexpr double kEstimate = 1.02;

// Replicas come in the order that shapes have (search_space.h): those with the larger key first.
auto order_key(const ReplicaKind& made) {
  return std::tuple(made.tensor_parallel, made.devices, made.micro_batch_size);
}

}  // namespace

ClassSearch::ClassSearch(const PredictionInputs& inputs, const SearchOptions& options, SearchState& state)
    : inputs_(inputs),
      options_(options),
      state_(state),
      maker_(inputs, options.runtime.schedule, options.recompute) {}

// Candidates are the shortest mixes of many selections of classes: one search over all classes would
// find only the mix with the best estimate, and estimates leave out reductions.
bool ClassSearch::run() {
  const std::vector<ReplicaKind> all = maker_.all();
  // No class fits memory: find out how much is missing, for the message.
  if (all.empty()) {
    note_excess();
    return !maker_.variants().empty();
  }
  std::vector<Candidate> candidates;
  // Estimates the shortest mix of the classes that fulfil a condition. An estimate is quick; only the
  // best few are played.
  const auto add = [&](const auto& condition) {
    std::vector<ReplicaKind> classes;
    std::ranges::copy_if(all, std::back_inserter(classes), condition);
    if (!classes.empty()) candidates.push_back(shortest_mix(classes));
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
  // The best estimate first, so that it cuts off most of the others.
  std::ranges::stable_sort(candidates, {}, &Candidate::seconds);
  Uses best;
  for (const Candidate& candidate : candidates) {
    if (candidate.seconds >= kEstimate * state_.best_seconds) break;
    if (play(candidate.uses)) best = candidate.uses;
  }
  if (!best.empty()) improve(std::move(best));
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

std::optional<Plan> ClassSearch::plan_of(const Uses& uses) const {
  // The replica that ends first with one more micro-batch is on top.
  // A queue entry: when the replica would end with one more micro-batch.
  struct Next {
    double end = 0;
    size_t replica = 0;
    bool operator<(const Next& other) const {
      return std::tie(end, replica) > std::tie(other.end, other.replica);
    }
  };
  std::vector<const ReplicaKind*> made;
  for (const Use& use : uses) made.insert(made.end(), use.replicas, &use.made);
  // Too many replicas: keep those with the best rate, in the order that they had.
  if (static_cast<int>(made.size()) > options_.most_replicas) {
    std::ranges::stable_sort(made, {},
                             [](const ReplicaKind* one) { return one->period / one->micro_batch_size; });
    made.resize(options_.most_replicas);
    std::ranges::stable_sort(made, std::greater<>(), [](const ReplicaKind* one) { return order_key(*one); });
  }
  // Gives out the micro-batches. A replica whose micro-batch is larger than the rest of the batch is
  // out.
  std::vector<int> counts(made.size(), 0);
  std::priority_queue<Next> next;
  for (size_t r = 0; r < made.size(); ++r) next.push({made[r]->fill + made[r]->period, r});
  int64_t left = options_.global_batch_size;
  while (left > 0 && !next.empty()) {
    const Next chosen = next.top();
    next.pop();
    const ReplicaKind& one = *made[chosen.replica];
    if (one.micro_batch_size > left) continue;
    left -= one.micro_batch_size;
    ++counts[chosen.replica];
    next.push({chosen.end + one.period, chosen.replica});
  }
  if (left > 0) return std::nullopt;
  Plan plan;
  plan.runtime = options_.runtime;
  Placement placement(inputs_.cluster);
  for (size_t r = 0; r < made.size(); ++r) {
    // A replica without micro-batches is left out; its devices stay unused.
    if (counts[r] == 0) continue;
    Replica replica{made[r]->micro_batch_size, counts[r], {}};
    for (int s = 0, first = 0; s < static_cast<int>(made[r]->kinds.size()); first += made[r]->layers[s++]) {
      // The devices are there, as the mix has counted them; but a node may have a rest that is too small
      // for a group.
      const auto node = placement.take(made[r]->kinds[s], made[r]->tensor_parallel);
      const auto stage = maker_.fitted(*made[r], s, first, made[r]->layers[s], counts[r]);
      if (!node || !stage) return std::nullopt;
      replica.stages.push_back(
          {made[r]->layers[s], *node, made[r]->tensor_parallel, stage->recomputed_layers});
    }
    plan.replicas.push_back(std::move(replica));
  }
  return plan;
}

bool ClassSearch::play(const Uses& uses) {
  std::optional<Plan> plan = plan_of(uses);
  if (!plan) return false;
  if (const auto link = missing_link(*plan, inputs_.cluster, inputs_.profile)) {
    state_.leave_out(*link);
    return false;
  }
  ++state_.predictions;
  const auto seconds = predict_seconds(inputs_, *plan);
  return seconds.is_ok() && state_.offer(inputs_, std::move(*plan), seconds.value());
}

// Hill climbing: the mix's split is the best for the longest stage, and not necessarily for the whole
// step. Moves between neighbouring stages, in both directions, are tried until a round brings nothing.
void ClassSearch::improve(Uses uses) {
  int played = 0;
  for (bool better = true; better;) {
    better = false;
    for (Use& use : uses) {
      const int stages = static_cast<int>(use.made.layers.size());
      for (int move = 0; move < 2 * (stages - 1); ++move) {
        const int from = move / 2 + move % 2;
        const int to = move / 2 + 1 - move % 2;
        if (use.made.layers[from] == 1) continue;
        const ReplicaKind before = use.made;
        --use.made.layers[from];
        ++use.made.layers[to];
        if (played == kMostImprovements) return;
        // A move that makes the longest stage longer than messages could win back is not played.
        if (maker_.evaluate(use.made) && use.made.period < kEstimate * before.period && ++played &&
            play(uses)) {
          better = true;
          continue;
        }
        use.made = before;
      }
    }
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
