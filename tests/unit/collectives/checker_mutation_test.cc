// checker_mutation_test.cc: good schedules, damaged at random. Whenever some order of events makes the
// damaged schedule fail on real numbers, the checker must have reported it.
#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "tests/unit/collectives/brute_run.h"
#include "tests/unit/collectives/problems.h"

namespace hdt::collectives::testing {
namespace {

constexpr uint64_t kSeed = 42;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kMutations = 1000;
#else
constexpr int kMutations = 10000;
#endif
constexpr int kOrders = 12;  // random orders tried of each damaged schedule

struct Sample {
  std::string algorithm;
  std::vector<StepList> lists;
};

// The steps of any algorithm, and every seventh time those of a double binary tree in many chunks.
Sample some_steps(const Problem& problem, std::mt19937_64& random) {
  const uint64_t choice = random() % (kAlgorithmCount + 1);
  if (choice == kAlgorithmCount) return {"chunked double_binary_tree", chunked_tree(problem)};
  const auto algorithm = static_cast<Algorithm>(choice);
  return {name_of(algorithm), all_steps(algorithm, problem)};
}

// Changes one step of one node; returns what it did.
std::string damage(std::vector<StepList>& lists, const Problem& problem, std::mt19937_64& random) {
  std::vector<size_t> busy;
  for (size_t n = 0; n < lists.size(); ++n) {
    if (!lists[n].steps.empty()) busy.push_back(n);
  }
  if (busy.empty()) return "";
  const size_t node = busy[random() % busy.size()];
  auto& steps = lists[node].steps;
  const size_t i = random() % steps.size();
  const uint64_t by = random() % 2 == 0 ? 1 : UINT64_MAX;  // one up or one down
  const std::string where = " of node " + std::to_string(node) + " step " + std::to_string(i);
  const bool gathers = steps[i].kind == StepKind::kReduce;
  switch (random() % (gathers ? 12 : 10)) {
    case 0:
      steps.erase(steps.begin() + static_cast<ptrdiff_t>(i));
      return "drop" + where;
    case 1:
      steps.insert(steps.begin() + static_cast<ptrdiff_t>(i), steps[i]);
      return "repeat" + where;
    case 2:
      std::swap(steps[i], steps[random() % steps.size()]);
      return "swap" + where;
    case 3:
      steps[i].offset += by;
      return "offset" + where;
    case 4:
      steps[i].target += by;
      return "target" + where;
    case 5:
      steps[i].length += by;
      return "length" + where;
    case 6:
      steps[i].peer = static_cast<int>(random() % problem.nodes);
      return "peer" + where;
    case 7:
      steps[i].from = static_cast<Area>(random() % 2);
      return "from" + where;
    case 8:
      steps[i].to = static_cast<Area>(random() % 3);
      return "to" + where;
    case 9:
      steps[i].kind = static_cast<StepKind>(random() % 5);
      return "kind" + where;
    case 10:
      steps[i].gathered += static_cast<int>(by);
      return "gathered" + where;
    default:
      steps[i].place += static_cast<int>(by);
      return "place" + where;
  }
}

TEST(CheckerMutation, ReportsEveryDamageThatCanBeSeen) {
  std::cout << "seed " << kSeed << "\n";
  std::mt19937_64 random(kSeed);
  int harmful = 0;
  int harmless = 0;
  int strict = 0;
  for (int round = 0; round < kMutations; ++round) {
    const auto what = static_cast<Collective>(random() % kCollectiveCount);
    const int nodes = 2 + static_cast<int>(random() % 5);
    const Problem problem =
        make_problem(what, nodes, kShapes[random() % 4], static_cast<int>(random() % nodes));
    auto [algorithm, lists] = some_steps(problem, random);
    const uint64_t scratch = scratch_of(lists);
    const std::string done = damage(lists, problem, random);
    if (done.empty()) continue;
    const std::string report = check(lists, problem, scratch);
    bool fails = false;
    for (int order = 0; order < kOrders && !fails; ++order) fails = !solves(lists, problem, random());
    harmful += fails;
    harmless += !fails && report.empty();
    strict += !fails && !report.empty();
    ASSERT_FALSE(fails && report.empty())
        << algorithm << " " << name_of(what) << ", " << nodes << " nodes, round " << round << ": " << done;
  }
  std::cout << harmful << " harmful, " << harmless << " harmless, " << strict
            << " reported though no run failed\n";
  EXPECT_GT(harmful, kMutations / 2);
  EXPECT_GT(harmless, 0);
}

TEST(CheckerMutation, TheMeasureItselfPassesGoodSchedules) {
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 300; ++round) {
    const auto what = static_cast<Collective>(random() % kCollectiveCount);
    const int nodes = 2 + static_cast<int>(random() % 5);
    const Problem problem =
        make_problem(what, nodes, kShapes[random() % 4], static_cast<int>(random() % nodes));
    const auto [algorithm, lists] = some_steps(problem, random);
    ASSERT_TRUE(solves(lists, problem, random()))
        << algorithm << " " << name_of(what) << ", " << nodes << " nodes, round " << round;
  }
}

}  // namespace
}  // namespace hdt::collectives::testing
