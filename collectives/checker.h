// checker.h: proves a schedule on symbolic values. Every element of every area holds a multiset of (node, element)
// contributions; the checker runs all nodes' schedules under the executor's hazard rule, with payloads landing
// as early as they can and as late as they can, and looks for: a wrong or incomplete result, a
// contribution used twice, a payload landing on a range still in use, scratch used twice, a recv-reduce that overwrites its
// input, a send without its recv (or of another length or place), a deadlock, a range outside its area.
#pragma once

#include <string>

#include "collectives/schedule.h"

namespace hdt::collectives {

// "" if the algorithm solves the problem (problem.me is ignored: all nodes are run), else what is wrong, naming
// node and step. `scratch_limit`: elements of kScratch every node has.
std::string check(Algorithm algorithm, const Problem& problem, uint64_t scratch_limit);

}  // namespace hdt::collectives
