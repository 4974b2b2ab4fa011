// cost_simulation.h: runs a cost program chunk after chunk in simulated time. Internal to the cost model.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/cost_program.h"

namespace hdt::collectives {

// The times, in picoseconds from the start, at which each of the `chunks` chunks was complete on all
// nodes, if each node has at most `in_flight` of them under way. Deterministic.
std::vector<uint64_t> simulate(const CostProgram& program, uint32_t chunks, uint32_t in_flight);

}  // namespace hdt::collectives
