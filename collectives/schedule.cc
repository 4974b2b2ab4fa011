// schedule.cc: the choice among algorithms: by name, by number, and by size if nothing has been measured
// (select_algorithm). The measured choice is the tuner's (daemon/group/tuner.h).
#include "collectives/schedule.h"

#include "collectives/algorithms.h"

namespace hdt::collectives {
namespace {

// Up to this size a chunk takes less time on the wire (50 us at 10 Gbit/s) than the steps that the
// logarithmic algorithms save cost over TCP (some 10 us each). Above it the ring's properties count
// more: it shares no link, takes any blocks and needs little scratch.
constexpr uint64_t kSmallChunkBytes = 64 * 1024;
// Up to this size not even the extra bytes count that recursive doubling sends beside halving-doubling.
constexpr uint64_t kTinyChunkBytes = 32 * 1024;

}  // namespace

const char* name_of(Algorithm algorithm) {
  constexpr const char* kNames[kAlgorithmCount] = {
      "ring",  "halving_doubling", "recursive_doubling", "double_binary_tree",
      "bruck", "pairwise",         "two_level"};
  return kNames[static_cast<size_t>(algorithm)];
}

std::optional<Algorithm> parse_algorithm(std::string_view name) {
  for (int i = 0; i < kAlgorithmCount; ++i) {
    if (name == name_of(static_cast<Algorithm>(i))) return static_cast<Algorithm>(i);
  }
  return std::nullopt;
}

// One node has no peers: its contribution is its result.
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
      return make_recursive_doubling(problem);
    case Algorithm::kDoubleBinaryTree:
      return make_double_binary_tree(problem);
    case Algorithm::kBruck:
      return make_bruck(problem);
    case Algorithm::kPairwise:
      return make_pairwise(problem);
    case Algorithm::kTwoLevel:
      break;
  }
  return make_two_level(problem);
}

// For one node only the ring counts as having a form, so that exactly one algorithm is left to choose.
bool has_own_form(Algorithm algorithm, const Problem& problem) {
  switch (algorithm) {
    case Algorithm::kRing:
      return true;
    case Algorithm::kHalvingDoubling:
      return problem.nodes > 1;
    case Algorithm::kRecursiveDoubling:
      return problem.nodes > 1 && has_recursive_doubling(problem);
    case Algorithm::kDoubleBinaryTree:
      return has_double_binary_tree(problem);
    case Algorithm::kBruck:
      return has_bruck(problem);
    case Algorithm::kPairwise:
      return has_pairwise(problem);
    case Algorithm::kTwoLevel:
      break;
  }
  return has_two_level(problem);
}

uint64_t scratch_needed(Algorithm algorithm, const Problem& problem) {
  if (problem.nodes == 1) return 0;
  switch (has_own_form(algorithm, problem) ? algorithm : Algorithm::kHalvingDoubling) {
    case Algorithm::kRing:
      return reduces(problem.what) ? problem.elements() : 0;
    case Algorithm::kHalvingDoubling:
      return halving_doubling_scratch(problem);
    case Algorithm::kRecursiveDoubling:
      return recursive_doubling_scratch(problem);
    case Algorithm::kDoubleBinaryTree:
      return double_binary_tree_scratch(problem);
    case Algorithm::kBruck:
      return bruck_scratch(problem);
    case Algorithm::kPairwise:
      return pairwise_scratch(problem);
    case Algorithm::kTwoLevel:
      break;
  }
  return two_level_scratch(problem);
}

// Uses the scratch of the algorithm's own form. Halving-doubling has one for everything.
Algorithm select_algorithm(const Problem& problem, DataType type, uint64_t scratch_limit) {
  const uint64_t bytes = problem.elements() * type_size(type);
  if (bytes > kSmallChunkBytes) return Algorithm::kRing;
  if (bytes <= kTinyChunkBytes && has_recursive_doubling(problem) &&
      recursive_doubling_scratch(problem) <= scratch_limit) {
    return Algorithm::kRecursiveDoubling;
  }
  return halving_doubling_scratch(problem) <= scratch_limit ? Algorithm::kHalvingDoubling : Algorithm::kRing;
}

}  // namespace hdt::collectives
