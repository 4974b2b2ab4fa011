// interleaved_search_test.cc: interleaved plans beside those of other schedules: they are found where they
// are faster, never where they lack memory, and nothing gets slower for them.
#include "training/plan/search/interleaved_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/training/plan/examples.h"
#include "training/plan/predict/predictor.h"
#include "training/plan/search/search.h"

namespace hdt::plan {
namespace {

using ::testing::HasSubstr;

constexpr ScheduleKind kPlain = ScheduleKind::kOneForwardOneBackward;

// Two devices on which one replica of eight layers is to run: 1F1B loses a stage's work to the bubble.
class InterleavedSearchTest : public ::testing::Test {
 protected:
  InterleavedSearchTest() {
    for (auto& [key, link] : profile_.links) link.bandwidth = {{1, 1e18}};
    for (auto& [key, cost] : profile_.compute) {
      cost = key.layer == "block" ? LayerCost{.01, .01, .01, 1e-9, 64 << 20}
                                  : LayerCost{1e-9, 1e-9, 1e-9, 1e-9, 1};
    }
    // Only micro-batches of one sample.
    std::erase_if(profile_.compute, [](const auto& entry) { return entry.first.micro_batch_size > 1; });
    options_.global_batch_size = 4;
    options_.most_replicas = 1;
  }
  PredictionInputs inputs() const { return {cluster_, model_, profile_, {}}; }
  SearchResult found(std::vector<ScheduleKind> schedules) {
    options_.schedules = std::move(schedules);
    const auto result = search(inputs(), options_);
    EXPECT_TRUE(result.is_ok()) << result.status().message();
    return result.is_ok() ? result.value() : SearchResult{};
  }
  // The bytes that the first stage of 1F1B needs with four layers.
  double plain_bytes() const {
    Plan plan;
    plan.replicas = {{1, 4, {{4, "n", 1}, {4, "n", 1}}}};
    return peak_memory_bytes(inputs(), plan).front();
  }

  Cluster cluster_{{{"n", "fast", 2, int64_t{1} << 40}}};
  Model model_ = example_model(8);
  Profile profile_ = example_profile();
  SearchOptions options_;
};

// Stages of four layers: 1F1B takes 4 + 1 times 4 x 30 ms, and with four chunks a bubble of a quarter.
TEST_F(InterleavedSearchTest, WinsWhereTheBubbleIsLong) {
  EXPECT_NEAR(found({kPlain}).step_seconds, .6, 1e-6);
  EXPECT_EQ(found({kPlain}).interleaved_plans, 0);
  const SearchResult both = found({kPlain, ScheduleKind::kInterleaved});
  EXPECT_NEAR(both.step_seconds, 4 * .12 + .03, 1e-6);
  EXPECT_EQ(both.plan.runtime.schedule, ScheduleKind::kInterleaved);
  EXPECT_EQ(both.plan.replicas[0].chunks(), 4);
  EXPECT_EQ(both.proof, SearchProof::kBest);
  EXPECT_GT(both.interleaved_plans, 0);
  EXPECT_EQ(predict_seconds(inputs(), both.plan).value(), both.step_seconds);
  // Alone, it is found as well, and nothing is proved.
  const SearchResult alone = found({ScheduleKind::kInterleaved});
  EXPECT_EQ(alone.plan, both.plan);
  EXPECT_EQ(alone.proof, SearchProof::kTried);
}

// 1F1B keeps the activations of two micro-batches on the first stage. With c chunks it keeps 2 + 2 (c - 1)
// + 1 of a c-th of them each, that is 2.25 or more.
TEST_F(InterleavedSearchTest, IsNotTakenWhereItLacksMemory) {
  cluster_.nodes[0].memory_bytes = static_cast<int64_t>(plain_bytes()) + (4 * 64 << 20) / 10;
  const SearchResult both = found({kPlain, ScheduleKind::kInterleaved});
  EXPECT_EQ(both.plan.runtime.schedule, kPlain);
  EXPECT_NEAR(both.step_seconds, .6, 1e-6);
  EXPECT_EQ(both.interleaved_plans, 0);
  const auto alone = search(inputs(), [&] {
    options_.schedules = {ScheduleKind::kInterleaved};
    return options_;
  }());
  ASSERT_FALSE(alone.is_ok());
  EXPECT_THAT(alone.status().message(), HasSubstr("fits memory in no split"));
  // A layer that is recomputed makes room.
  options_.recompute = {.layers = true, .attention = true};
  const SearchResult recomputed = found({ScheduleKind::kInterleaved});
  EXPECT_GT(recomputed.plan.replicas[0].stages[0].recomputed_layers, 0);
  const auto prediction = predict(inputs(), recomputed.plan);
  ASSERT_TRUE(prediction.is_ok());
  EXPECT_LE(memory_excess(cluster_, recomputed.plan, prediction.value()).bytes, 0);
  EXPECT_FALSE(recomputed.plan.replicas[0].stages[0].attention_only);
  // Attention makes room in less time, where the profile has it.
  for (auto& [key, cost] : profile_.compute)
    cost.recomputed_attention = {cost.forward / 10, cost.activation_bytes / 4};
  const SearchResult attention = found({ScheduleKind::kInterleaved});
  EXPECT_TRUE(attention.plan.replicas[0].stages[0].attention_only);
  EXPECT_LT(attention.step_seconds, recomputed.step_seconds);
  EXPECT_LE(memory_excess(cluster_, attention.plan, predict(inputs(), attention.plan).value()).bytes, 0);
  // Unless it takes longer than whole layers.
  for (auto& [key, cost] : profile_.compute) cost.recomputed_attention->more_seconds = 9 * cost.forward;
  EXPECT_EQ(found({ScheduleKind::kInterleaved}).plan, recomputed.plan);
}

TEST_F(InterleavedSearchTest, NamesWhyThereIsNoInterleavedPlan) {
  options_.global_batch_size = 3;
  options_.schedules = {ScheduleKind::kInterleaved};
  EXPECT_THAT(search(inputs(), options_).status().message(), HasSubstr("no interleaved plan: it needs"));
  // Beside 1F1B that is no error.
  EXPECT_EQ(found({kPlain, ScheduleKind::kInterleaved}).plan.runtime.schedule, kPlain);
}

// Beyond twelve devices bases come from the search by kinds of replicas. No device has room for more than
// five layers, so replicas have stages.
TEST_F(InterleavedSearchTest, LargeClustersHaveInterleavedPlans) {
  cluster_.nodes[0].devices = 1;
  cluster_.nodes[0].memory_bytes = int64_t{6} << 30;
  cluster_.nodes.assign(32, cluster_.nodes[0]);
  for (size_t i = 0; i < cluster_.nodes.size(); ++i) cluster_.nodes[i].name = "n" + std::to_string(i);
  model_ = example_model(16);
  model_.state_factor = 4;
  model_.layers[1].parameter_bytes[1] = 256 << 20;
  options_.most_replicas = 8;
  options_.global_batch_size = 32;
  const SearchResult plain = found({kPlain});
  const SearchResult both = found({kPlain, ScheduleKind::kInterleaved});
  EXPECT_LT(both.step_seconds, plain.step_seconds);
  EXPECT_EQ(both.plan.runtime.schedule, ScheduleKind::kInterleaved);
  EXPECT_EQ(found({ScheduleKind::kInterleaved}).plan.runtime.schedule, ScheduleKind::kInterleaved);
}

// Random clusters, models and batches, with memory that is short for some.
TEST(InterleavedSearchOfRandomClusters, IsNeverSlowerForIt) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  const auto any = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  int taken = 0;
  int played = 0;
  // More than that where the first ones have no plan, or all of one kind.
  constexpr int kRounds = HDT_SEARCH_CASES / 5;
  for (int round = 0; round < 20 * kRounds; ++round) {
    if (round >= kRounds && taken > 0 && taken < played) break;
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", case " << round);
    const Model model = example_model(any(4, 8));
    Profile profile = example_profile();
    for (auto& [key, link] : profile.links) link.bandwidth = {{1, 1e8 * any(1, 1000)}};
    for (auto& [key, cost] : profile.compute)
      cost.recomputed_attention = {.002 * any(1, 10), cost.activation_bytes / any(1, 4)};
    std::erase_if(profile.compute, [](const auto& entry) {
      return entry.first.micro_batch_size > 1 || entry.first.tensor_parallel > 1;
    });
    Cluster cluster;
    for (int node = any(1, 2); node >= 0; --node)
      cluster.nodes.push_back({"n" + std::to_string(node), any(0, 1) ? "fast" : "slow", any(1, 2),
                               int64_t{any(400, 4000)} << 20});
    SearchOptions options;
    options.global_batch_size = any(2, 8);
    options.most_replicas = any(1, 3);
    options.recompute = {.layers = any(0, 1) == 1, .attention = any(0, 1) == 1};
    options.schedules = {kPlain};
    const PredictionInputs inputs{cluster, model, profile, {}};
    const auto plain = search(inputs, options);
    options.schedules.push_back(ScheduleKind::kInterleaved);
    const auto both = search(inputs, options);
    if (!plain.is_ok()) continue;
    ASSERT_TRUE(both.is_ok()) << both.status().message();
    const SearchResult& result = both.value();
    ASSERT_LE(result.step_seconds, plain.value().step_seconds);
    ASSERT_EQ(result.predictions, plain.value().predictions);
    ASSERT_EQ(result.plan.global_batch_size(), options.global_batch_size);
    const auto prediction = predict(inputs, result.plan);
    ASSERT_TRUE(prediction.is_ok()) << prediction.status().message();
    ASSERT_EQ(prediction.value().step_seconds, result.step_seconds);
    ASSERT_LE(memory_excess(cluster, result.plan, prediction.value()).bytes, 0);
    taken += result.plan.runtime.schedule == ScheduleKind::kInterleaved;
    ++played;
  }
  EXPECT_GT(taken, 0);
  EXPECT_GT(played, taken);
}

}  // namespace
}  // namespace hdt::plan
