// cost_simulation.h: runs a cost program piece after piece in simulated time. Internal to the cost model.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/cost_program.h"

namespace hdt::collectives {

// The times, in picoseconds, at which each of the `pieces` was complete on all nodes, if each node has
// `in_flight` of them under way at most.
std::vector<uint64_t> simulate(const CostProgram& program, uint32_t pieces, uint32_t in_flight);

}  // namespace hdt::collectives
