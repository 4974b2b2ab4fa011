#include "libclient/way_tuner.h"

#include <algorithm>
#include <bit>

namespace hdt::client {

size_t WayTuner::size_of(uint64_t bytes) {
  return std::min<size_t>(static_cast<size_t>(std::bit_width(bytes)), kSizes - 1);
}

WayTuner::Way WayTuner::choose(collectives::Collective what, uint64_t bytes) const {
  const Record& record = records_[static_cast<size_t>(what)][size_of(bytes)];
  if (record.trials[0] < kTrials || record.trials[1] < kTrials) {
    return record.trials[0] <= record.trials[1] ? Way::kSlots : Way::kKernel;
  }
  return record.best[1] < record.best[0] ? Way::kKernel : Way::kSlots;
}

void WayTuner::took(collectives::Collective what, uint64_t bytes, Way way, int64_t nanoseconds) {
  Record& record = records_[static_cast<size_t>(what)][size_of(bytes)];
  if (record.calls++ == kCalls) record = {};
  ++record.trials[static_cast<size_t>(way)];
  int64_t& best = record.best[static_cast<size_t>(way)];
  best = std::min(best, nanoseconds);
}

}  // namespace hdt::client
