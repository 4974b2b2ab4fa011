// ownership.cc: owner sets, rounds and buckets.
#include "training/engine/ownership.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>

namespace hdt::training {

// Goes through the units in order and begins a new set where the owners change.
std::vector<OwnerSet> owner_sets(const Layout& layout) {
  std::vector<OwnerSet> sets;
  for (int unit = layout.has_tied_unit() ? kTiedUnit : 0; unit < layout.num_units(); ++unit) {
    std::vector<int> owners;
    for (int replica = 0; replica < layout.num_replicas(); ++replica)
      std::ranges::copy(layout.owners_of(unit, replica), std::back_inserter(owners));
    // The tied unit is complete when all uses are, so it is not reduced with others.
    if (unit <= layout.embedding_unit() || sets.back().ranks != owners)
      sets.push_back({std::move(owners), {unit, unit}});
    sets.back().units.end = unit + 1;
  }
  return sets;
}

std::vector<int> owner_groups(const std::vector<OwnerSet>& sets) {
  std::map<std::vector<int>, int> first_with;
  std::vector<int> groups;
  for (int set = 0; set < static_cast<int>(sets.size()); ++set)
    groups.push_back(first_with.try_emplace(sets[set].ranks, set).first->second);
  return groups;
}

// Greedy colouring: each group goes into the first round that has none of its ranks. That need not be the
// minimum of rounds, but there are few groups.
std::vector<std::vector<int>> disjoint_rounds(const std::vector<OwnerSet>& sets) {
  std::vector<std::vector<int>> rounds;
  std::vector<std::vector<int>> taken;  // ranks in each round
  const std::vector<int> groups = owner_groups(sets);
  for (int set = 0; set < static_cast<int>(sets.size()); ++set) {
    if (groups[set] != set) continue;
    size_t round = 0;
    const auto meets = [&](const std::vector<int>& ranks) {
      return std::any_of(sets[set].ranks.begin(), sets[set].ranks.end(), [&](int rank) {
        return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
      });
    };
    while (round < rounds.size() && meets(taken[round])) ++round;
    if (round == rounds.size()) {
      rounds.emplace_back();
      taken.emplace_back();
    }
    rounds[round].push_back(set);
    taken[round].insert(taken[round].end(), sets[set].ranks.begin(), sets[set].ranks.end());
  }
  return rounds;
}

std::vector<int> share_out(std::span<const size_t> sizes, int owners) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t item) { return sizes[item]; });
  std::vector<size_t> taken(owners);
  std::vector<int> owner_of(sizes.size());
  for (const size_t item : order) {
    const auto least = std::ranges::min_element(taken);
    *least += sizes[item];
    owner_of[item] = static_cast<int>(least - taken.begin());
  }
  return owner_of;
}

// Goes through the units in the order of backward and begins a new bucket where the set changes or the
// bucket is full. Between two ranges of a rank the set always changes, as other ranks hold what lies there.
std::vector<Bucket> plan_buckets(const std::vector<OwnerSet>& sets, std::span<const int> units,
                                 const std::function<size_t(int unit)>& unit_elements, size_t most_elements) {
  std::vector<Bucket> buckets;
  size_t elements = 0;
  for (size_t left = units.size(); left > 0; --left) {
    const int unit = units[left - 1];
    int set = 0;
    while (!sets[set].units.contains(unit)) ++set;
    const size_t more = unit_elements(unit);
    if (buckets.empty() || buckets.back().owner_set != set || elements + more > most_elements) {
      buckets.push_back({set, {unit, unit + 1}});
      elements = 0;
    }
    buckets.back().units.first = unit;
    elements += more;
  }
  return buckets;
}

}  // namespace hdt::training
