// equal_split.h: the best plan that treats all devices alike, as frameworks for equal devices do: every
// replica has the same number of stages, micro-batches and samples, layers are split evenly (the first stages
// take what is left over), and one tensor-parallel degree holds everywhere. Devices are taken in the order of
// the cluster's kinds. What an unequal split brings is the difference to search.h.
#pragma once

#include "base/status.h"
#include "training/plan/search/search.h"

namespace hdt::plan {

// kConfig when none fits memory.
Result<SearchResult> search_equal_split(const PredictionInputs& inputs, const SearchOptions& options);

}  // namespace hdt::plan
