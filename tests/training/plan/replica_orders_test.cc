// replica_orders_test.cc: which orders of replicas differ, and that the search finds the best of them.
#include "training/plan/search/replica_orders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/training/plan/examples.h"
#include "training/plan/predict/predictor.h"
#include "training/plan/search/improve.h"

namespace hdt::plan {
namespace {

// Two nodes of each kind, and links that make reductions the longest part of a step: slow between the kinds,
// and slower still where the first kind sends to the second.
struct SlowLinks {
  SlowLinks() : profile(example_profile()), cluster(example_cluster()) {
    profile.links[{"fast", "fast", false}] = {1e-4, {{1e6, 4e8}}};
    profile.links[{"slow", "slow", false}] = {1e-4, {{1e6, 3e8}}};
    profile.links[{"fast", "slow", false}] = {1e-4, {{1e6, 1e8}}};
    profile.links[{"slow", "fast", false}] = {1e-4, {{1e6, 2e8}}};
  }
  PredictionInputs inputs() const { return {cluster, model, profile, {}}; }
  double seconds(const Plan& plan) const {
    const auto found = predict_seconds(inputs(), plan);
    EXPECT_TRUE(found.is_ok()) << found.status().message();
    return found.is_ok() ? found.value() : 0;
  }

  Model model = example_model();
  Profile profile;
  Cluster cluster;
};

// Each permutation takes as long as one of those that are visited.
TEST(ReplicaOrders, EveryOrderThatDiffersIsVisitedOnce) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  const auto any = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  const SlowLinks given;
  size_t orders = 0;
  size_t differ = 0;
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round);
    std::vector<std::string> places;
    for (const Node& node : given.cluster.nodes) places.insert(places.end(), 2, node.name);
    std::ranges::shuffle(places, random);
    Plan plan;
    plan.runtime.overlap_gradients = any(0, 1);
    if (any(0, 1)) plan.runtime.reduction = ReductionKind::kHdt;
    while (plan.replicas.size() < 4) {
      plan.replicas.push_back({1, any(1, 2), {{4, places.back(), 1}}});
      places.pop_back();
      if (any(0, 1) == 0) continue;
      const int first = any(1, 3);
      plan.replicas.back().stages = {{first, plan.replicas.back().stages[0].node, 1},
                                     {4 - first, places.back(), 1}};
      places.pop_back();
    }
    std::vector<double> visited = {given.seconds(plan)};
    std::set<std::vector<int>> values = {order_of_rings(given.inputs(), plan)};
    for_each_other_order(given.inputs(), plan, [&](const Plan& other) {
      visited.push_back(given.seconds(other));
      EXPECT_TRUE(values.insert(order_of_rings(given.inputs(), other)).second);
    });
    std::vector<size_t> order = {0, 1, 2, 3};
    do {
      Plan permuted = plan;
      for (size_t r = 0; r < order.size(); ++r) permuted.replicas[r] = plan.replicas[order[r]];
      const double seconds = given.seconds(permuted);
      EXPECT_TRUE(std::ranges::any_of(
          visited, [&](double known) { return std::abs(known - seconds) < 1e-9 * seconds; }));
    } while (std::ranges::next_permutation(order).found);
    orders += visited.size();
    const auto [least, most] = std::ranges::minmax(visited);
    differ += most > least * 1.001;
  }
  EXPECT_LT(orders, 20U * 24U);
  EXPECT_GT(differ, 0U) << "seed " << seed;
}

TEST(ReplicaOrders, NothingDependsOnThemInsideANode) {
  const SlowLinks given;
  Plan plan;
  plan.replicas = {{1, 4, {{4, "a", 1}}}, {1, 2, {{4, "a", 1}}}};
  EXPECT_TRUE(order_of_rings(given.inputs(), plan).empty());
  for_each_other_order(given.inputs(), plan, [](const Plan&) { ADD_FAILURE() << "visited"; });
}

// A ring that goes to and fro between two nodes shares their ports with itself; in the order of the nodes it
// crosses once each way. The replicas are too many for exchanging single stages between them.
TEST(ReplicaOrders, ImprovementBringsReplicasOfANodeTogether) {
  SlowLinks given;
  for (Node& node : given.cluster.nodes) node.devices = 10;
  Plan to_and_fro;
  for (int pair = 0; pair < 5; ++pair) {
    to_and_fro.replicas.push_back({1, 4, {{2, "a", 1}, {2, "a", 1}}});
    to_and_fro.replicas.push_back({1, 2, {{2, "b", 1}, {2, "b", 1}}});
  }
  Plan together = to_and_fro;
  std::ranges::stable_sort(together.replicas, {},
                           [](const Replica& replica) { return replica.stages[0].node; });
  ASSERT_LT(given.seconds(together), .9 * given.seconds(to_and_fro));
  SearchOptions options;
  options.global_batch_size = to_and_fro.global_batch_size();
  const PredictionInputs inputs = given.inputs();
  SearchState state;
  PlanGauge gauge(inputs, options, state);
  constexpr int64_t kFewPlays = 40;
  Improvement(inputs, options, {}, state, gauge, kFewPlays).climb(to_and_fro, given.seconds(to_and_fro));
  ASSERT_TRUE(state.best);
  EXPECT_LE(state.best_seconds, given.seconds(together));
}

}  // namespace
}  // namespace hdt::plan
