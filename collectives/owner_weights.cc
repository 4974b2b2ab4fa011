// owner_weights.cc: see owner_weights.h. T is a fraction; the largest weight that each node can have within T
// follows from it, and the weights are levelled below those.
#include "collectives/owner_weights.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace hdt::collectives {
namespace {

// Wide enough for rate * nodes^2 * units, and for rate * nodes^4.
__extension__ using Wide = unsigned __int128;

// The time of the operation in which D is 1: above / below.
struct Time {
  Wide above;
  Wide below;
  bool operator<(const Time& other) const { return above * other.below < other.above * below; }
};

uint64_t link_of(const OwnerRates& rates) { return std::max<uint64_t>(rates.link, 1); }

// The largest weights that a time allows each of three nodes or more. Within T they are (T b - 1) / (n - 2)
// by the link of the node, and T r / (n - 1) by its engine. They are counted in units in which the whole is
// (n - 1) (n - 2) times Time::below, so that all are whole numbers.
class MostWeights {
 public:
  explicit MostWeights(std::span<const OwnerRates> rates) : rates_(rates), nodes_(rates.size()) {}

  // The time in which the weights can add up to 1. Their sum is a line between the times at which a node
  // begins to have one, or passes from its link's limit to its engine's.
  Time least_time() const {
    const std::vector<Time> bends = sorted_bends();
    const auto enough = std::ranges::partition_point(
        bends, [&](Time time) { return sum(time) < time.below * (nodes_ - 1) * (nodes_ - 2); });
    // At the first bend all weights are 0, so it is not that one.
    const Time before = *std::prev(enough);
    // Behind `before`: T * slope - passed * (n - 1) = (n - 1) (n - 2).
    Wide slope = 0;
    Wide passed = 0;
    for (const OwnerRates& rates : rates_) {
      if (before.above * link_of(rates) < before.below) continue;
      const bool by_link = rates.combine == 0 || by_link_of(rates, before) < by_engine_of(rates, before);
      slope += by_link ? Wide{link_of(rates)} * (nodes_ - 1) : Wide{rates.combine} * (nodes_ - 2);
      passed += by_link;
    }
    return {(nodes_ - 1) * (nodes_ - 2 + passed), slope};
  }

  // The largest weight in units.
  uint32_t units(const OwnerRates& rates, Time time) const {
    const Wide whole = time.below * (nodes_ - 1) * (nodes_ - 2);
    return static_cast<uint32_t>(std::min<Wide>(most(rates, time) * kWeightUnits / whole, kWeightUnits));
  }

 private:
  Wide by_link_of(const OwnerRates& rates, Time time) const {
    const Wide carried = time.above * link_of(rates);
    return carried <= time.below ? 0 : (carried - time.below) * (nodes_ - 1);
  }
  Wide by_engine_of(const OwnerRates& rates, Time time) const {
    return time.above * rates.combine * (nodes_ - 2);
  }
  Wide most(const OwnerRates& rates, Time time) const {
    const Wide by_link = by_link_of(rates, time);
    return rates.combine == 0 ? by_link : std::min(by_link, by_engine_of(rates, time));
  }
  Wide sum(Time time) const {
    Wide all = 0;
    for (const OwnerRates& rates : rates_) all += most(rates, time);
    return all;
  }
  std::vector<Time> sorted_bends() const {
    std::vector<Time> bends;
    for (const OwnerRates& rates : rates_) {
      const Wide link = link_of(rates);
      bends.push_back({1, link});
      const Wide steeper = link * (nodes_ - 1);
      const Wide flatter = Wide{rates.combine} * (nodes_ - 2);
      if (rates.combine != 0 && steeper > flatter) bends.push_back({nodes_ - 1, steeper - flatter});
    }
    std::ranges::sort(bends, [](Time a, Time b) { return a < b; });
    return bends;
  }

  std::span<const OwnerRates> rates_;
  const size_t nodes_;
};

// The least time of the slowest node, whatever the nodes own: each sends its contribution and receives the
// result, and its ranks work on all of the data.
Time time_of_all(std::span<const OwnerRates> rates) {
  uint64_t slowest = UINT64_MAX;
  for (const OwnerRates& each : rates) {
    slowest = std::min(slowest, link_of(each));
    if (each.local != 0) slowest = std::min(slowest, each.local);
  }
  return {1, slowest};
}

// Between two nodes a link carries as much whatever its node owns, so only the engines count.
std::vector<uint32_t> most_of_two(std::span<const OwnerRates> rates) {
  Time time = time_of_all(rates);
  if (rates[0].combine != 0 && rates[1].combine != 0)
    time = std::max(time, Time{1, Wide{rates[0].combine} + rates[1].combine});
  std::vector<uint32_t> most(2, kWeightUnits);
  for (size_t node = 0; node < 2; ++node) {
    const Wide units = time.above * rates[node].combine * kWeightUnits / time.below;
    if (rates[node].combine != 0) most[node] = static_cast<uint32_t>(std::min<Wide>(units, kWeightUnits));
  }
  return most;
}

std::vector<uint32_t> most_of_many(std::span<const OwnerRates> rates) {
  const MostWeights weights(rates);
  const Time time = std::max(weights.least_time(), time_of_all(rates));
  std::vector<uint32_t> most(rates.size());
  std::ranges::transform(rates, most.begin(),
                         [&](const OwnerRates& each) { return weights.units(each, time); });
  return most;
}

}  // namespace

std::vector<uint32_t> owner_weights(std::span<const OwnerRates> rates) {
  if (rates.size() < 2) return std::vector<uint32_t>(rates.size(), kWeightUnits);
  return levelled(kWeightUnits, rates.size() == 2 ? most_of_two(rates) : most_of_many(rates));
}

// Those with the least room come first. Each gets its part of what is left, or the most that it can have; so
// the last one, which has most room, gets what rounding has left over.
std::vector<uint32_t> levelled(uint32_t all, std::span<const uint32_t> most) {
  std::vector<size_t> order(most.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return most[i]; });
  std::vector<uint32_t> parts(most.size());
  uint32_t left = all;
  for (size_t i = 0; i < most.size(); ++i) {
    const bool last = i + 1 == most.size();
    parts[order[i]] = last ? left : std::min(most[order[i]], left / static_cast<uint32_t>(most.size() - i));
    left -= parts[order[i]];
  }
  return parts;
}

double seconds_of_a_byte(std::span<const uint32_t> weights, std::span<const OwnerRates> rates) {
  const auto nodes = static_cast<double>(rates.size());
  double slowest = 0;
  for (size_t i = 0; i < rates.size(); ++i) {
    const double part = weights.empty() ? 1 / nodes : static_cast<double>(weights[i]) / kWeightUnits;
    slowest = std::max(slowest, (1 + (nodes - 2) * part) / static_cast<double>(link_of(rates[i])));
    if (rates[i].combine != 0)
      slowest = std::max(slowest, (nodes - 1) * part / static_cast<double>(rates[i].combine));
    if (rates[i].local != 0) slowest = std::max(slowest, 1 / static_cast<double>(rates[i].local));
  }
  return slowest;
}

double gain_of(std::span<const uint32_t> weights, std::span<const OwnerRates> rates) {
  return std::max(1.0, seconds_of_a_byte({}, rates) / seconds_of_a_byte(weights, rates));
}

uint64_t pace_of(const OwnerRates& rates) {
  return rates.combine == 0 ? link_of(rates) : std::min(link_of(rates), 2 * rates.combine);
}

std::vector<uint64_t> weighted_offsets(std::span<const uint32_t> weights, uint64_t elements) {
  std::vector<uint64_t> offsets{0};
  Wide units = 0;
  for (const uint32_t weight : weights) {
    units += weight;
    offsets.push_back(static_cast<uint64_t>(units * elements / kWeightUnits));
  }
  return offsets;
}

}  // namespace hdt::collectives
