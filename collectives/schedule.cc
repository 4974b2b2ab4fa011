// schedule.cc: which algorithm to run, and its schedule.
#include "collectives/schedule.h"

#include "collectives/algorithms.h"

namespace hdt::collectives {
namespace {

// Below this a piece takes less time on the wire (50 us on 10 Gbit/s) than the steps that the logarithmic
// algorithms save (some 10 us each over TCP); above, links shared by nobody, any shares and few scratch count
// more.
constexpr uint64_t kSmallPieceBytes = 64 * 1024;
// Below this even the bytes do not count that recursive doubling sends more than halving-doubling.
constexpr uint64_t kTinyPieceBytes = 4 * 1024;

}  // namespace

const char* name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kHalvingDoubling:
      return "halving_doubling";
    case Algorithm::kRecursiveDoubling:
      break;
  }
  return "recursive_doubling";
}

std::unique_ptr<Schedule> make_schedule(Algorithm algorithm, const Problem& problem) {
  if (problem.nodes == 1) {
    auto schedule = std::make_unique<ListedSchedule>();
    if (reduces(problem.what)) {
      schedule->add({StepKind::kCopy, -1, Area::kInput, Area::kOutput, 0, problem.elements(), 0});
    }
    return schedule;
  }
  switch (algorithm) {
    case Algorithm::kRing:
      return make_ring(problem);
    case Algorithm::kHalvingDoubling:
      return make_halving_doubling(problem);
    case Algorithm::kRecursiveDoubling:
      break;
  }
  return make_recursive_doubling(problem);
}

Algorithm select_algorithm(const Problem& problem, DataType type, uint64_t scratch_limit) {
  const uint64_t bytes = problem.elements() * type_size(type);
  if (bytes > kSmallPieceBytes) return Algorithm::kRing;
  if (bytes <= kTinyPieceBytes && has_recursive_doubling(problem) &&
      recursive_doubling_scratch(problem) <= scratch_limit) {
    return Algorithm::kRecursiveDoubling;
  }
  return halving_doubling_scratch(problem) <= scratch_limit ? Algorithm::kHalvingDoubling : Algorithm::kRing;
}

}  // namespace hdt::collectives
