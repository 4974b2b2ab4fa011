// checker.h: proves a schedule on symbolic values. Every element of every area holds a set of
// contributions (whose, and which element). The checker runs all nodes' schedules under the executor's
// hazard rule, with payloads that land as early as they can, as late as they can, and in a random order.
// It looks for: a wrong or incomplete result, a contribution used twice, a payload that lands on a range
// still in use, scratch used twice, a recv-reduce that overwrites its input, a send without its recv (or
// of another length or place), a deadlock, and a range outside its area. A barrier must hold every node
// back until all have started.
//
// That a range is not in use any more is proven from the order that messages and hazards force, not from
// the runs: no timing can break a schedule that passes. Sets are exact and not hashes. That costs memory, so
// checks use blocks of a few elements.
//
// For tests; the product does not call it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/schedule.h"

namespace hdt::collectives {

// "" if the algorithm solves the problem, else what is wrong, with node and step. All nodes are run, so
// problem.me is ignored. `scratch_limit`: elements of kScratch that every node has.
std::string check(Algorithm algorithm, const Problem& problem, uint64_t scratch_limit);

// The steps of one node, and how many elements of scratch its schedule asks for.
struct StepList {
  std::vector<Step> steps;
  uint64_t scratch_length = 0;
};
// The same for any steps: one list for each node.
std::string check(const std::vector<StepList>& lists, const Problem& problem, uint64_t scratch_limit);

// The steps of one node's schedule. Nothing if it has more than `most` steps, or is not pure: asked
// again in another order, it must give the same steps.
std::optional<StepList> list_steps(const Schedule& schedule, size_t most);

}  // namespace hdt::collectives
