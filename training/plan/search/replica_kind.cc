// replica_kind.cc: the splits of a class, its period and fill, and the sequences of kinds that are
// tried.
#include "training/plan/search/replica_kind.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

#include "training/engine/schedules.h"
#include "training/plan/describe/node_link.h"

namespace hdt::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Longer pipelines are not tried: their micro-batches in flight cost more than they bring.
constexpr int kMostStages = 64;
constexpr int kMostStagesOfTwoKinds = 24;
// A number of micro-batches that fills every pipeline.
constexpr int kMany = std::numeric_limits<int>::max();

}  // namespace

int64_t ReplicaKind::most_samples(double seconds) const {
  if (seconds < fill + period) return 0;
  return static_cast<int64_t>((seconds - fill) / period) * micro_batch_size;
}

// Everything that depends on kinds and variants only is computed once here; a search makes thousands of
// classes.
ClassMaker::ClassMaker(const PredictionInputs& inputs, ScheduleKind schedule, RecomputeChoice recompute,
                       double state_share)
    : inputs_(inputs),
      schedule_(schedule),
      recompute_(splits_backward(schedule) ? RecomputeChoice{} : recompute),
      state_share_(state_share),
      kinds_(inputs.cluster.node_kinds()) {
  devices_.assign(kinds_.size(), 0);
  nodes_.assign(kinds_.size(), 0);
  memory_.assign(kinds_.size(), kInfinity);
  workers_.resize(kinds_.size());
  std::set<std::pair<int, int>> variants;
  for (const auto& [key, cost] : inputs.profile.compute)
    variants.insert({key.tensor_parallel, key.micro_batch_size});
  for (const Node& node : inputs.cluster.nodes) {
    const size_t kind = kind_index(kinds_, node);
    ++nodes_[kind];
    devices_[kind] += node.devices;
    memory_[kind] = std::min(memory_[kind], static_cast<double>(node.memory_bytes));
    // Groups depend on the degree alone, so each degree is counted with its first variant only.
    for (const auto& [degree, size] : variants) {
      if (size == std::ranges::find(variants, degree, &std::pair<int, int>::first)->second)
        workers_[kind][degree] += node.devices / degree;
    }
  }
  for (const std::pair<int, int>& variant : variants) {
    bool any = false;
    for (size_t kind = 0; kind < kinds_.size(); ++kind) {
      // A kind is usable if all layer kinds were profiled, and a node has enough devices for a group.
      const bool known = is_profiled(inputs, kinds_[kind].device, variant.first, variant.second);
      if (!known || workers_[kind][variant.first] == 0) continue;
      any = true;
      costs_.emplace(std::pair{static_cast<int>(kind), variant},
                     RangeCosts(inputs, kinds_[kind].device, variant.first, variant.second));
    }
    if (any) variants_.push_back(variant);
  }
}

int ClassMaker::workers(int kind, int tensor_parallel) const { return workers_[kind].at(tensor_parallel); }

bool ClassMaker::profiled(int kind, std::pair<int, int> variant) const {
  return costs_.contains({kind, variant});
}

const RangeCosts& ClassMaker::costs(const ReplicaKind& made, int stage) const {
  return costs_.at({made.kinds[stage], {made.tensor_parallel, made.micro_batch_size}});
}

std::optional<FittedStage> ClassMaker::fitted(const ReplicaKind& made, int stage, int first_layer, int layers,
                                              int micro_batches, double extra_bytes) const {
  const auto stages = static_cast<int>(made.kinds.size());
  const MemoryLimit limit{memory_[made.kinds[stage]] + extra_bytes, made.tensor_parallel,
                          most_in_flight(schedule_, stages, stage, micro_batches), recompute_, state_share_};
  // From layers to units: the first stage has the embedding (unit 0) in addition, the last one the head.
  return fit_stage(inputs_, costs(made, stage), stage == 0 ? 0 : first_layer + 1,
                   first_layer + layers + (stage + 1 == stages ? 2 : 1), limit);
}

double ClassMaker::message_seconds(const ReplicaKind& made, int stage) const {
  const int from = made.kinds[stage];
  const int to = made.kinds[stage + 1];
  const Link* link = nullptr;
  // Neighbours of a kind share a node where one holds several groups.
  const int groups_a_node =
      workers(from, made.tensor_parallel) > 0 && from == to ? devices_[from] / made.tensor_parallel : 1;
  const auto link_of = [&](bool inside) {
    return link_between(inputs_.cluster, inputs_.profile, kinds_[from], kinds_[to], inside);
  };
  if (from == to && groups_a_node >= 2 * nodes_[from]) link = link_of(true);
  if (!link) link = link_of(false);
  if (!link) return 0;
  // All transformer layers are taken to pass on as much as the first kind of them.
  const double bytes = static_cast<double>(inputs_.model.layers[1].output_bytes) * made.micro_batch_size;
  return link->latency + bytes / (link->rate(bytes) * inputs_.calibration.point_to_point);
}

std::vector<int> ClassMaker::split(const ReplicaKind& made, double longest, double extra_bytes) const {
  const int stages = static_cast<int>(made.kinds.size());
  std::vector<int> layers;
  int first = 0;
  for (int index = 0; index < stages; ++index) {
    // More layers need more memory and more time, so the largest number that fits can be bisected.
    const auto fits = [&](int count) {
      const auto stage = fitted(made, index, first, count, kMany, extra_bytes);
      return stage && stage->cost.forward + stage->cost.backward <= longest;
    };
    // Each later stage needs a layer, and the last stage has to take all that are left.
    const int left = inputs_.model.num_layers() - first;
    const int behind = stages - index - 1;
    int most = left - behind;
    int least = behind == 0 ? left : 1;
    if (!fits(least)) return {};
    while (least < most) {
      const int middle = (least + most + 1) / 2;
      if (fits(middle))
        least = middle;
      else
        most = middle - 1;
    }
    layers.push_back(least);
    first += least;
  }
  return layers;
}

// There and back: a micro-batch of stage s passes s and all later stages with forward and backward, and
// crosses each link twice. Until it is back, the stage can start only as many others as it may keep in
// flight, so a period is at least that time divided by their number.
bool ClassMaker::evaluate(ReplicaKind& made) const {
  const int stages = static_cast<int>(made.kinds.size());
  const bool gradient_goes_ahead = splits_backward(schedule_);
  std::vector<double> seconds;
  std::vector<double> passing;  // until the gradient goes on
  double update = 0;
  int first = 0;
  for (int index = 0; index < stages; ++index) {
    const auto stage = fitted(made, index, first, made.layers[index], kMany);
    if (!stage) return false;
    const StageCost& cost = stage->cost;
    first += made.layers[index];
    seconds.push_back(cost.forward + cost.backward);
    passing.push_back(seconds.back() - (gradient_goes_ahead ? cost.weight_gradient : 0));
    update = std::max(update, state_share_ * cost.update);
  }
  made.period = 0;
  double there_and_back = 0;
  for (int index = stages - 1; index >= 0; --index) {
    there_and_back += passing[index];
    if (index + 1 < stages) there_and_back += 2 * message_seconds(made, index);
    const int in_flight = most_in_flight(schedule_, stages, index, kMany);
    made.period = std::max({made.period, seconds[index], there_and_back / in_flight});
  }
  // Filling and draining: what the way of one micro-batch takes beyond a period, and the longest update.
  made.fill = std::max(0.0, there_and_back - made.period) + update;
  return true;
}

// The greedy split with a limit proves whether any split keeps to it, so bisection finds the shortest
// limit.
std::optional<ReplicaKind> ClassMaker::make(std::pair<int, int> variant,
                                            const std::vector<int>& kinds) const {
  ReplicaKind made;
  made.tensor_parallel = variant.first;
  made.micro_batch_size = variant.second;
  made.kinds = kinds;
  made.devices.assign(kinds_.size(), 0);
  for (const int kind : kinds) made.devices[kind] += variant.first;
  // Without a limit of time, the greedy split shows whether any fits memory. Its longest stage is the
  // first upper end of the bisection.
  made.layers = split(made, kInfinity, 0);
  if (made.layers.empty()) return std::nullopt;
  // Bisection over the length of the longest stage.
  double low = 0;
  double high = 0;
  // The longest stage of the split that fits memory is an upper end.
  for (int index = 0, first = 0; index < static_cast<int>(kinds.size()); first += made.layers[index++]) {
    const auto stage = fitted(made, index, first, made.layers[index], kMany);
    high = std::max(high, stage->cost.forward + stage->cost.backward);
  }
  constexpr double kPrecision = 1e-7;
  while (high - low > kPrecision * high) {
    const double middle = (low + high) / 2;
    std::vector<int> layers = split(made, middle, 0);
    if (layers.empty()) {
      low = middle;
    } else {
      made.layers = std::move(layers);
      high = middle;
    }
  }
  return evaluate(made) ? std::optional(made) : std::nullopt;
}

// Bisects the memory that must be added to every device until some split fits.
double ClassMaker::least_excess(std::pair<int, int> variant, const std::vector<int>& kinds) const {
  ReplicaKind made;
  made.tensor_parallel = variant.first;
  made.micro_batch_size = variant.second;
  made.kinds = kinds;
  double low = 0;
  double high = 1;
  // With enough memory every split fits, so the doubling ends. The bisection's precision is one byte.
  while (split(made, kInfinity, high).empty()) high *= 2;
  while (high - low > 1) {
    const double middle = (low + high) / 2;
    (split(made, kInfinity, middle).empty() ? low : high) = middle;
  }
  return high;
}

void ClassMaker::for_each_sequence(std::pair<int, int> variant, bool three_or_more,
                                   const std::function<void(const std::vector<int>&)>& visit) const {
  std::vector<int> usable;
  for (int kind = 0; kind < static_cast<int>(kinds_.size()); ++kind) {
    if (profiled(kind, variant)) usable.push_back(kind);
  }
  const int layers = inputs_.model.num_layers();
  std::vector<int> sequence;
  const auto add = [&](int kind, int stages) { sequence.insert(sequence.end(), stages, kind); };
  for (const int first : usable) {
    // One kind, then each ordered pair of kinds.
    if (three_or_more) break;
    for (int stages = 1; stages <= std::min({workers(first, variant.first), layers, kMostStages}); ++stages) {
      sequence.clear();
      add(first, stages);
      visit(sequence);
    }
    // Pairs are ordered: the first kind holds the first stages, which keep more micro-batches in flight.
    const int most = std::min(layers, kMostStagesOfTwoKinds);
    for (const int second : usable) {
      if (second == first) continue;
      for (int a = 1; a <= std::min(workers(first, variant.first), most - 1); ++a) {
        for (int b = 1; b <= std::min(workers(second, variant.first), most - a); ++b) {
          sequence.clear();
          add(first, a);
          add(second, b);
          visit(sequence);
        }
      }
    }
  }
  // Three kinds or more, in the order of the cluster and in the opposite one. Numbers of stages double,
  // as all combinations would be too many.
  const std::function<void(size_t, int)> more = [&](size_t at, int chosen) {
    if (static_cast<int>(sequence.size()) > std::min(layers, kMostStages)) return;
    if (at == usable.size()) {
      if (chosen < 3) return;
      visit(sequence);
      // The sequence is restored, since the recursion goes on with it.
      const std::vector<int> forward = sequence;
      std::ranges::reverse(sequence);
      visit(sequence);
      sequence = forward;
      return;
    }
    more(at + 1, chosen);
    for (int stages = 1; stages <= workers(usable[at], variant.first); stages *= 2) {
      const size_t before = sequence.size();
      add(usable[at], stages);
      more(at + 1, chosen + 1);
      sequence.resize(before);
    }
  };
  sequence.clear();
  if (three_or_more) more(0, 0);
}

std::vector<ReplicaKind> ClassMaker::all(const std::function<bool()>& stop) const {
  // By devices, first kind, degree and micro-batch size. A map keeps the result independent of the order
  // in which classes are found.
  std::map<std::tuple<std::vector<int>, int, int, int>, ReplicaKind> best;
  for (const bool three_or_more : {false, true}) {
    if (!best.empty()) break;
    for (const std::pair<int, int>& variant : variants_) {
      for_each_sequence(variant, three_or_more, [&](const std::vector<int>& kinds) {
        if (stop()) return;
        std::optional<ReplicaKind> made = make(variant, kinds);
        if (!made) return;
        const auto [entry, added] = best.try_emplace(
            {made->devices, kinds.front(), made->tensor_parallel, made->micro_batch_size}, *made);
        if (!added && std::tie(made->period, made->fill) < std::tie(entry->second.period, entry->second.fill))
          entry->second = *made;
      });
    }
  }
  std::vector<ReplicaKind> classes;
  for (auto& [key, made] : best) classes.push_back(std::move(made));
  return classes;
}

}  // namespace hdt::plan
