// expressions.h: runs step lists on text, so that the order in which contributions are combined can be read.
#pragma once

#include <string>
#include <vector>

#include "collectives/checker.h"

namespace hdt::collectives::testing {

// The values that end in kOutput, by node and element: node 2's contribution is "2", a op b is "(a b)"; ""
// where nothing was written. Expects lists that have passed the checker.
std::vector<std::vector<std::string>> results(const std::vector<StepList>& lists, const Problem& problem);

}  // namespace hdt::collectives::testing
