// owner_rates.h: rates of nodes for the tests of weights.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "collectives/owner_weights.h"

namespace hdt::collectives::testing {

// Nodes that only their links limit.
inline std::vector<OwnerRates> links_alone(const std::vector<uint64_t>& rates) {
  std::vector<OwnerRates> all;
  for (const uint64_t rate : rates) all.push_back({.link = rate});
  return all;
}

// Of each kind from 1 to a bound of its own; a node may have no limit by its engine or its ranks.
inline std::vector<OwnerRates> random_owner_rates(std::mt19937_64& random, size_t nodes) {
  const auto bound = [&] { return uint64_t{1} << (1 + random() % 40); };
  const uint64_t link = bound();
  const uint64_t combine = bound();
  const uint64_t local = bound();
  std::vector<OwnerRates> all(nodes);
  for (OwnerRates& rates : all) {
    rates.link = 1 + random() % link;
    if (random() % 4 != 0) rates.combine = 1 + random() % combine;
    if (random() % 4 == 0) rates.local = 1 + random() % local;
  }
  return all;
}

}  // namespace hdt::collectives::testing
