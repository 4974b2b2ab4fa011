// holder_weights.cc: see holder_weights.h. T is a fraction. The least that each node must hold to be done by
// then follows from it, and what is left goes to those that hold least.
#include "collectives/holder_weights.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace hdt::collectives {
namespace {

// Wide enough for 11 * rate * units^2, and for rate * nodes * units.
__extension__ using Product = unsigned __int128;

// A time in which D is 1: above / below.
struct Ratio {
  Product above;
  Product below;
  bool operator<(const Ratio& other) const { return above * other.below < other.above * below; }
};

uint64_t above_zero(uint64_t rate) { return std::max<uint64_t>(rate, 1); }

Ratio least_holding_time(std::span<const uint64_t> rates) {
  std::vector<uint64_t> ascending(rates.size());
  std::ranges::transform(rates, ascending.begin(), above_zero);
  std::ranges::sort(ascending);
  // A node must send what it holds, and receive what it does not hold; one of them is a half at least.
  Ratio least{1, Product{2} * ascending.front()};
  // The k slowest nodes hold no more than everything.
  Product sum = 0;
  for (size_t k = 0; k < ascending.size(); ++k) {
    sum += ascending[k];
    least = std::max(least, Ratio{k, sum});
  }
  return least;
}

// The fraction that the node must hold: 1 - T b.
uint32_t least_units(Ratio time, uint64_t rate) {
  const Product received = time.above * above_zero(rate);
  if (received >= time.below) return 0;
  return static_cast<uint32_t>((time.below - received) * kWeightUnits / time.below);
}

// The time that blocks by `shares` take.
Ratio time_of(std::span<const uint32_t> shares, std::span<const uint64_t> rates) {
  const uint64_t all = std::accumulate(shares.begin(), shares.end(), uint64_t{0});
  Ratio longest{0, 1};
  for (size_t i = 0; i < shares.size(); ++i) {
    longest = std::max(longest, Ratio{std::max<uint64_t>(shares[i], all - shares[i]), above_zero(rates[i])});
  }
  longest.below *= all;
  return longest;
}

}  // namespace

// With the rate of an engine, too, max(w, 1 - w) / rate is the time of a reduce-scatter: no weight that is
// compared here is above a half.
std::vector<uint64_t> holder_rates(std::span<const OwnerRates> rates) {
  constexpr double kLeastGain = 1.1;
  std::vector<uint64_t> links;
  std::vector<uint64_t> slower;
  for (const OwnerRates& each : rates) {
    links.push_back(each.link);
    slower.push_back(each.combine == 0 ? each.link : std::min(each.link, each.combine));
  }
  if (slower == links) return links;
  const auto seconds_of_both = [&](const std::vector<uint32_t>& weights) {
    double sum = 0;
    for (const auto* by : {&links, &slower}) {
      const Ratio time = time_of(weights, *by);
      sum += static_cast<double>(time.above) / static_cast<double>(time.below);
    }
    return sum;
  };
  const double otherwise = std::min(seconds_of_both(std::vector<uint32_t>(rates.size(), 1)),
                                    seconds_of_both(holder_weights(links)));
  return seconds_of_both(holder_weights(slower)) * kLeastGain <= otherwise ? slower : links;
}

std::vector<uint32_t> holder_weights(std::span<const uint64_t> rates) {
  const Ratio time = least_holding_time(rates);
  std::vector<uint32_t> least(rates.size());
  std::ranges::transform(rates, least.begin(), [&](uint64_t rate) { return least_units(time, rate); });
  // Those that must hold most come first. Each gets that, or its part of what is left if it is more; so the
  // last one gets what rounding has left over.
  std::vector<size_t> order(rates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t node) { return least[node]; });
  std::vector<uint32_t> weights(rates.size());
  uint32_t left = kWeightUnits;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto part = left / static_cast<uint32_t>(order.size() - i);
    weights[order[i]] = std::max(least[order[i]], part);
    left -= weights[order[i]];
  }
  return weights;
}

bool holders_gain(std::span<const uint32_t> weights, std::span<const uint32_t> shares,
                  std::span<const uint64_t> rates) {
  const Ratio with = time_of(weights, rates);
  const Ratio without = time_of(shares, rates);
  return !(Ratio{without.above * 10, without.below} < Ratio{with.above * 11, with.below});
}

// The nodes' weights lie on a circle, one behind the other. The far end of a point is opposite to it. As
// nobody holds more than a half, that is another node, and each point is opposite to one point.
int far_end_of(std::span<const uint32_t> weights, int root, uint32_t place) {
  const auto own = static_cast<size_t>(root);
  const uint64_t before = std::accumulate(weights.begin(), weights.begin() + root, uint64_t{0});
  uint64_t opposite =
      (before + uint64_t{weights[own]} * place / kWeightUnits + kWeightUnits / 2) % kWeightUnits;
  size_t node = 0;
  for (; node + 1 < weights.size() && opposite >= weights[node]; ++node) opposite -= weights[node];
  return node == own ? -1 : static_cast<int>(node);
}

}  // namespace hdt::collectives
