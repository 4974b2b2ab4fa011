// equal_split.h: the best plan that treats all devices alike, as frameworks for equal devices do. Every
// replica has the same number of stages, micro-batches and samples, layers are split evenly (the first
// stages take what is left over), and one tensor-parallel degree holds everywhere. Devices are taken in
// the order of the cluster's kinds. The difference to the plan of search.h is what an unequal split
// brings.
#pragma once

#include "base/status.h"
#include "training/plan/search/search.h"

namespace hdt::plan {

// Tries every variant of the profile with every number of stages up to 64. kConfig if none fits memory,
// or if the batch cannot be shared equally. The result has no runner-up and proves nothing.
Result<SearchResult> search_equal_split(const PredictionInputs& inputs, const SearchOptions& options);

}  // namespace hdt::plan
