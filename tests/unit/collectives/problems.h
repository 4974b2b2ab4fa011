// problems.h: problems of every shape for the tests of schedules.
#pragma once

#include <array>
#include <vector>

#include "collectives/checker.h"

namespace hdt::collectives::testing {

enum class Shape { kEqual, kThreeToOne, kSomeEmpty, kOneElement, kNothing };
inline constexpr std::array kShapes = {Shape::kEqual, Shape::kThreeToOne, Shape::kSomeEmpty,
                                       Shape::kOneElement, Shape::kNothing};

// Blocks of a few elements each; none for a barrier.
Problem make_problem(Collective what, int nodes, Shape shape, int root = 0);

// Every root up to 16 nodes, else a few; {0} where the collective has no root.
std::vector<int> roots_of(Collective what, int nodes);

std::vector<StepList> all_steps(Algorithm algorithm, const Problem& problem);
// By this node.
uint64_t sent_elements(const StepList& list);
// By this node; each element once for each contribution but the first.
uint64_t combined_elements(const StepList& list);

// Double binary trees with chunks of one element, where there may be that many.
std::vector<StepList> chunked_tree(const Problem& problem);

// The most scratch any node asks for.
uint64_t scratch_of(const std::vector<StepList>& lists);

// How many problems of so many nodes to check where few nodes have `most`. Checking takes as long as the
// fourth power of the nodes, so beyond 22 nodes there are fewer: 1.4 % of `most` at 64.
int vectors_of(int nodes, int most);

}  // namespace hdt::collectives::testing
