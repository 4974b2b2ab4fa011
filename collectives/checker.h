// checker.h: proves a schedule on symbolic values. Every element of every area holds a set of contributions
// (whose, and which element); the checker runs all nodes' schedules under the executor's hazard rule, with
// payloads landing as early as they can, as late as they can and in a random order, and looks for: a wrong or
// incomplete result, a contribution used twice, a payload landing on a range still in use, scratch used
// twice, a recv-reduce that overwrites its input, a send without its recv (or of another length or place), a
// deadlock, a range outside its area. A barrier must hold every node back until all have started.
//
// "Still in use" is proven from the order that messages and hazards force, not from the runs: no timing can
// break what passes. Sets are exact, no hashes; so a block may well be a few elements long.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/schedule.h"

namespace hdt::collectives {

// "" if the algorithm solves the problem (problem.me is ignored: all nodes are run), else what is wrong,
// naming node and step. `scratch_limit`: elements of kScratch every node has.
std::string check(Algorithm algorithm, const Problem& problem, uint64_t scratch_limit);

// The same for any steps: one list per node, and how much scratch each says it uses.
struct StepList {
  std::vector<Step> steps;
  uint64_t scratch_length = 0;
};
std::string check(const std::vector<StepList>& lists, const Problem& problem, uint64_t scratch_limit);

// The steps of one node's schedule; an empty optional if it has more than `most` steps or is not pure.
std::optional<StepList> list_steps(const Schedule& schedule, size_t most);

}  // namespace hdt::collectives
