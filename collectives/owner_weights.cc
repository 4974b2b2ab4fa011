// owner_weights.cc: see owner_weights.h. T is a fraction; the largest weight that each node can have within T
// follows from it, and the weights are levelled below those.
#include "collectives/owner_weights.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>

namespace hdt::collectives {
namespace {

// Wide enough for rate * nodes^2 * units.
__extension__ using Wide = unsigned __int128;

// The time of the operation in which D is 1: above / below.
struct Time {
  Wide above;
  Wide below;
};

// If the k fastest nodes own everything, their weights add up to 1 at T = (k + n - 2) / (sum of their rates).
// The right k is the largest whose slowest node still gets something: T times its rate is above 1.
Time least_time(std::span<const uint64_t> rates) {
  std::vector<uint64_t> descending(rates.begin(), rates.end());
  std::ranges::sort(descending, std::greater<>());
  Time least{1, 1};
  Wide sum = 0;
  for (size_t k = 0; k < descending.size(); ++k) {
    sum += descending[k];
    const Time time{k + 1 + rates.size() - 2, sum};
    if (k > 0 && time.above * descending[k] <= time.below) break;
    least = time;
  }
  // The node with the slowest link must send its contribution and receive the result, whatever it owns.
  const Wide slowest = descending.back();
  return least.above * slowest < least.below ? Time{1, slowest} : least;
}

// The most units that a node can own within the time: (T b - 1) / (n - 2) of all.
uint32_t most_units(Time time, uint64_t rate, size_t nodes) {
  const Wide carried = time.above * rate;
  if (carried <= time.below) return 0;
  const Wide units = (carried - time.below) * kWeightUnits / (time.below * (nodes - 2));
  return static_cast<uint32_t>(std::min<Wide>(units, kWeightUnits));
}

}  // namespace

std::vector<uint32_t> owner_weights(std::span<const uint64_t> rates) {
  const size_t nodes = rates.size();
  std::vector<uint64_t> above_zero(rates.begin(), rates.end());
  for (uint64_t& rate : above_zero) rate = std::max<uint64_t>(rate, 1);
  const bool any_will_do = nodes < 3;
  std::vector<uint32_t> most(nodes, kWeightUnits);
  if (!any_will_do) {
    const Time time = least_time(above_zero);
    std::ranges::transform(above_zero, most.begin(),
                           [&](uint64_t rate) { return most_units(time, rate, nodes); });
  }
  return levelled(kWeightUnits, most);
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

double seconds_of_a_byte(std::span<const uint32_t> weights, std::span<const uint64_t> rates) {
  const auto nodes = static_cast<double>(rates.size());
  double slowest = 0;
  for (size_t i = 0; i < rates.size(); ++i) {
    const double part = weights.empty() ? 1 / nodes : static_cast<double>(weights[i]) / kWeightUnits;
    slowest =
        std::max(slowest, (1 + (nodes - 2) * part) / static_cast<double>(std::max<uint64_t>(rates[i], 1)));
  }
  return slowest;
}

double gain_of(std::span<const uint32_t> weights, std::span<const uint64_t> rates) {
  return std::max(1.0, seconds_of_a_byte({}, rates) / seconds_of_a_byte(weights, rates));
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
