// brute_run.h: runs step lists on real numbers in one random order, by the rules of schedule.h written down a
// second time and as simply as can be. What the checker is measured by.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/checker.h"

namespace hdt::collectives::testing {

// False if this run gets stuck, leaves its memory, or gives a wrong result.
bool solves(const std::vector<StepList>& lists, const Problem& problem, uint64_t seed);

}  // namespace hdt::collectives::testing
