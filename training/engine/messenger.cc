// messenger.cc: what follows from a messenger's operations.
#include "training/engine/messenger.h"

namespace hdt::training {

// The greatest number is that of the lowest rank.
Result<int> lowest_rank_with(bool mine, Messenger& messenger) {
  double greatest = mine ? messenger.size() - messenger.rank() : 0;
  HDT_RETURN_IF_ERROR(messenger.max_over_world({&greatest, 1}));
  return greatest == 0 ? -1 : messenger.size() - static_cast<int>(greatest);
}

}  // namespace hdt::training
