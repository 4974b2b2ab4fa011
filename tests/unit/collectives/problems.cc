// problems.cc: see problems.h.
#include "tests/unit/collectives/problems.h"

#include <algorithm>
#include <numeric>

#include "collectives/algorithms.h"

namespace hdt::collectives::testing {

Problem make_problem(Collective what, int nodes, Shape shape, int root) {
  Problem problem{what, nodes, 0, root, {0}};
  for (int node = 0; node < nodes; ++node) {
    uint64_t length = 0;
    switch (shape) {
      case Shape::kEqual:
        length = 2;
        break;
      case Shape::kThreeToOne:
        length = node % 2 == 0 ? 3 : 1;
        break;
      case Shape::kSomeEmpty:
        length = node % 3 == 1 ? 0 : 1 + node % 2;
        break;
      case Shape::kOneElement:
        length = node == nodes / 2 ? 1 : 0;
        break;
      case Shape::kNothing:
        break;
    }
    if (what == Collective::kBarrier) length = 0;
    problem.block_offsets.push_back(problem.block_offsets.back() + length);
  }
  return problem;
}

std::vector<int> roots_of(Collective what, int nodes) {
  if (what != Collective::kBroadcast && what != Collective::kReduce) return {0};
  std::vector<int> roots(nodes);
  std::iota(roots.begin(), roots.end(), 0);
  return nodes <= 16 ? roots : std::vector<int>{0, 1, nodes / 2, nodes - 1};
}

std::vector<StepList> all_steps(Algorithm algorithm, const Problem& problem) {
  std::vector<StepList> lists;
  for (int node = 0; node < problem.nodes; ++node) {
    Problem own = problem;
    own.me = node;
    lists.push_back(list_steps(*make_schedule(algorithm, own), 1 << 20).value());
  }
  return lists;
}

std::vector<StepList> chunked_tree(const Problem& problem) {
  std::vector<StepList> lists;
  for (int node = 0; node < problem.nodes; ++node) {
    Problem own = problem;
    own.me = node;
    lists.push_back(list_steps(*make_double_binary_tree(own, 1), 1000).value());
  }
  return lists;
}

uint64_t scratch_of(const std::vector<StepList>& lists) {
  uint64_t most = 0;
  for (const StepList& list : lists) most = std::max(most, list.scratch_length);
  return most;
}

uint64_t sent_elements(const StepList& list) {
  uint64_t sent = 0;
  for (const Step& step : list.steps) sent += step.kind == StepKind::kSend ? step.length : 0;
  return sent;
}

uint64_t combined_elements(const StepList& list) {
  uint64_t combined = 0;
  for (const Step& step : list.steps) {
    if (step.kind == StepKind::kRecvReduce) combined += step.length;
    if (step.kind == StepKind::kReduce) combined += step.length * static_cast<uint64_t>(step.gathered);
  }
  return combined;
}

int vectors_of(int nodes, int most) {
  constexpr int64_t kManyNodes = 22;
  const auto fourth_power = [](int64_t n) { return n * n * n * n; };
  if (nodes <= kManyNodes) return most;
  return static_cast<int>(std::max<int64_t>(2, most * fourth_power(kManyNodes) / fourth_power(nodes)));
}

}  // namespace hdt::collectives::testing
