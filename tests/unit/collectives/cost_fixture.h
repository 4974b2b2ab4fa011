// cost_fixture.h: operations and networks for the tests of the cost model.
#pragma once

#include <cstdint>

#include "collectives/cost_model.h"

namespace hdt::collectives::testing {

// 10 Gbit/s Ethernet through a kernel.
inline const CostMeasurements kEthernet{{10e-6, 1.25e9}, 2e-6, 8e9, 1e10, {}};

// Chunks of fp32, in blocks as equal as can be.
inline Operation operation(Collective what, int nodes, uint64_t elements, uint64_t chunks = 1,
                           int in_flight = 4) {
  Operation result{{what, nodes, 0, 0, {}}, DataType::kFloat32, chunks, in_flight};
  for (int node = 0; node <= nodes; ++node) {
    result.chunk.block_offsets.push_back(elements * static_cast<uint64_t>(node) /
                                         static_cast<uint64_t>(nodes));
  }
  return result;
}

}  // namespace hdt::collectives::testing
