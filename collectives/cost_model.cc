// cost_model.cc: from simulated chunks to the time of an operation, and the order of algorithms by it.
#include "collectives/cost_model.h"

#include <algorithm>

#include "collectives/cost_program.h"
#include "collectives/cost_simulation.h"

namespace hdt::collectives {
namespace {

using Lists = std::vector<std::vector<Step>>;  // by node

// The maximum number of steps that are simulated for one operation, if that allows at least one filling
// of the pipeline: some 10 ms of work.
constexpr uint64_t kMostSimulatedSteps = 65536;

// The first chunks of a long operation are simulated; the others follow at the pace of the later half of
// those. The very last ones are faster, as nothing follows them, so the busiest part of a node sets a
// limit to the pace. Four fillings of the pipeline are simulated. Schedules with very many steps, such
// as the ring's for 64 nodes, have time for one only: the pace is then that of finishing all before the
// next ones begin, which such schedules come close to.
uint64_t picoseconds_of(const Lists& lists, const Operation& operation,
                        const CostMeasurements& measurements) {
  const CostProgram program = make_cost_program(lists, operation, measurements);
  const auto in_flight = static_cast<uint64_t>(operation.chunks_in_flight);
  uint64_t fillings = 4;
  while (fillings > 1 && fillings * in_flight * program.steps.size() > kMostSimulatedSteps) fillings /= 2;
  const uint64_t simulated = std::min(operation.chunks, fillings * in_flight);
  const auto ends = simulate(program, static_cast<uint32_t>(simulated), static_cast<uint32_t>(in_flight));
  // When the first `chunks` chunks are all complete; chunks may overtake each other.
  const auto end_of = [&](uint64_t chunks) {
    return chunks == 0 ? 0 : *std::max_element(ends.begin(), ends.begin() + static_cast<ptrdiff_t>(chunks));
  };
  if (simulated == operation.chunks) return end_of(simulated);
  const uint64_t before = fillings / 2 * in_flight;
  const uint64_t pace =
      std::max(busiest(program), (end_of(simulated) - end_of(before)) / (simulated - before));
  return end_of(simulated) + pace * (operation.chunks - simulated);
}

Problem problem_of(Algorithm algorithm, const Operation& operation) {
  Problem problem = operation.chunk;
  if (algorithm == Algorithm::kPairwise && !operation.pairwise_offsets.empty())
    problem.block_offsets = operation.pairwise_offsets;
  if (algorithm == Algorithm::kTwoLevel && !operation.two_level_offsets.empty()) {
    problem.block_offsets = operation.two_level_offsets;
    problem.places = operation.two_level_places;
  }
  return problem;
}

double seconds(uint64_t picoseconds) { return static_cast<double>(picoseconds) * 1e-12; }

}  // namespace

double predict(Algorithm algorithm, const Operation& operation, const CostMeasurements& measurements) {
  return seconds(
      picoseconds_of(steps_of_all(algorithm, problem_of(algorithm, operation)), operation, measurements));
}

// An algorithm without a form of its own has the steps of another one; comparing the lists finds it.
std::vector<Candidate> rank_algorithms(const Operation& operation, uint64_t scratch_limit,
                                       const CostMeasurements& measurements) {
  std::vector<Candidate> ranked;
  std::vector<Lists> seen;
  for (int i = 0; i < kAlgorithmCount; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    Candidate candidate{algorithm, 0, ""};
    const Problem problem = problem_of(algorithm, operation);
    seen.push_back(steps_of_all(algorithm, problem));
    const auto same = std::find(seen.begin(), seen.end() - 1, seen.back()) - seen.begin();
    const uint64_t scratch = scratch_needed(algorithm, problem);
    if (same < i) {
      candidate.left_out = std::string("takes the same steps as ") + name_of(static_cast<Algorithm>(same));
    } else if (scratch > scratch_limit) {
      candidate.left_out = "needs " + std::to_string(scratch) + " elements of scratch, a node has " +
                           std::to_string(scratch_limit);
    } else {
      candidate.seconds = seconds(picoseconds_of(seen.back(), operation, measurements));
    }
    ranked.push_back(std::move(candidate));
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const Candidate& a, const Candidate& b) {
    return a.left_out.empty() != b.left_out.empty() ? a.left_out.empty() : a.seconds < b.seconds;
  });
  return ranked;
}

}  // namespace hdt::collectives
