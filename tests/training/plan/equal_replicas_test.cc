// equal_replicas_test.cc: one replica of each class played is the whole plan played.
#include "training/plan/predict/equal_replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/training/plan/examples.h"
#include "training/plan/predict/predictor.h"
#include "training/plan/predict/step_simulation.h"

namespace hdt::plan {
namespace {

using ::testing::ElementsAre;

Cluster nodes(int fast, int slow, int devices) {
  Cluster cluster;
  for (int i = 0; i < fast + slow; ++i)
    cluster.nodes.push_back({"n" + std::to_string(i), i < fast ? "fast" : "slow", devices, int64_t{1} << 40});
  return cluster;
}

Prediction played(const PredictionInputs& inputs, const EqualReplicas& equal) {
  StepSimulation simulation(inputs, equal);
  EXPECT_TRUE(simulation.run().is_ok());
  Prediction prediction = simulation.take();
  for (const StageMemory& worker : worker_memory(inputs, equal.plan, equal.shares))
    prediction.peak_memory_bytes.push_back(worker.bytes(inputs));
  return equal.of_all(prediction);
}

TEST(EqualReplicas, ManyEqualOnesAreOne) {
  const Cluster cluster = nodes(6, 0, 2);
  const Model model = example_model();
  const Profile profile = example_profile();
  Plan plan;
  for (int r = 0; r < 6; ++r) {
    const std::string node = "n" + std::to_string(r);
    plan.replicas.push_back({1, 3, {{2, node, 1}, {2, node, 1}}});
  }
  const EqualReplicas equal = find_equal_replicas({cluster, model, profile, {}}, plan);
  EXPECT_EQ(equal.plan.replicas.size(), 1u);
  EXPECT_THAT(equal.class_of, ElementsAre(0, 0, 0, 0, 0, 0));
  for (const Reduction& reduction : equal.reductions) {
    EXPECT_EQ(reduction.owners, 6);
    ASSERT_EQ(reduction.hops.size(), 1u);
    EXPECT_FALSE(reduction.hops[0].inside());
  }
}

TEST(EqualReplicas, ANodeWithALodgerIsNotEqual) {
  const Cluster cluster = nodes(4, 0, 2);
  const Model model = example_model();
  const Profile profile = example_profile();
  Plan plan;
  for (const char* node : {"n0", "n1", "n2", "n3", "n3"}) plan.replicas.push_back({1, 3, {{4, node, 1}}});
  const EqualReplicas equal = find_equal_replicas({cluster, model, profile, {}}, plan);
  EXPECT_THAT(equal.class_of, ElementsAre(0, 0, 0, 1, 1));
}

// Plans of many classes, with replicas that share nodes, cross nodes, and are split alike or not.
TEST(EqualReplicas, RandomPlansArePlayedToTheLastBit) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  const auto any = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  int merged = 0;
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round);
    Cluster cluster = nodes(any(1, 6), any(0, 6), 4);
    Model model = example_model(6);
    if (any(0, 1)) model.tied_parameter_bytes = {{1, 6 << 20}, {2, 3 << 20}};
    // With two devices a stage, layers may have sums over them.
    const int degree = any(1, 2);
    if (any(0, 1)) {
      model.layers[1].forward_sums = {any(1, 4) << 20};
      model.layers[1].backward_sums = {any(1, 4) << 20, 1 << 20};
    }
    Profile profile = example_profile();
    for (auto& [key, link] : profile.links) link.bandwidth = {{1, any(1, 20) * 2e7}};
    if (any(0, 1)) {
      cluster.nics = {{"ib", {"rdma"}, {"*"}}, {"roce", {"rdma"}, {"*"}}, {"eth", {"tcp"}, {"*"}}};
      for (Node& node : cluster.nodes) node.nics = {any(0, 1) ? "ib" : "roce", "eth"};
      for (const char* nic : {"ib", "roce"})
        profile.links[{"fast", "fast", false, nic}] = {0, {{1, any(1, 20) * 2e8}}};
    }
    Plan plan;
    plan.runtime.overlap_gradients = any(0, 1);
    plan.runtime.use_distributed_optimizer = any(0, 1);
    const bool weighted = plan.runtime.use_distributed_optimizer && any(0, 1);
    if (any(0, 1)) plan.runtime.bucket_bytes = 6 << 20;
    if (any(0, 1)) {
      plan.runtime.schedule = ScheduleKind::kLockstep;
      if (any(0, 1)) plan.runtime.background_send_bytes = 0;
    }
    const bool interleave = plan.runtime.schedule != ScheduleKind::kLockstep && any(0, 1);
    // Few kinds of replicas, on devices in a row.
    std::vector<std::string> workers;
    for (const Node& node : cluster.nodes) workers.insert(workers.end(), node.devices / degree, node.name);
    std::vector<std::pair<std::vector<int>, int>> kinds;
    for (int kind = any(1, 3); kind > 0; --kind) {
      const int stages = any(1, 3);
      std::vector<int> layers(stages, 1);
      for (int left = 6 - stages; left > 0; --left) ++layers[any(0, stages - 1)];
      kinds.emplace_back(layers, stages * any(1, 3));
    }
    for (size_t at = 0; at < workers.size();) {
      const auto& [layers, count] = kinds[any(0, static_cast<int>(kinds.size()) - 1)];
      if (at + layers.size() > workers.size()) break;
      do {
        Replica replica{1, count, {}};
        // Stages of two layers or more each can have two chunks.
        const bool chunks = interleave && layers.size() > 1 && std::ranges::min(layers) > 1;
        for (const int here : layers) {
          replica.stages.push_back({here, workers[at++], degree});
          if (chunks) replica.stages.back().chunk_layers = {1, here - 1};
          if (weighted) replica.stages.back().optimizer_shard_weight = any(1, 2);
        }
        if (chunks) plan.runtime.schedule = ScheduleKind::kInterleaved;
        plan.replicas.push_back(replica);
      } while (at + layers.size() <= workers.size() && any(0, 3) > 0);
    }
    if (plan.replicas.empty()) continue;
    const PredictionInputs inputs{cluster, model, profile, {}};
    ASSERT_TRUE(check_plan(plan, cluster, model, profile).is_ok());
    const EqualReplicas equal = find_equal_replicas(inputs, plan);
    const EqualReplicas apart = find_equal_replicas(inputs, plan, true);
    ASSERT_EQ(apart.plan.replicas.size(), plan.replicas.size());
    merged += equal.plan.replicas.size() < plan.replicas.size();
    const Prediction one = played(inputs, equal);
    const Prediction all = played(inputs, apart);
    ASSERT_EQ(one.step_seconds, all.step_seconds);
    ASSERT_EQ(one.workers.size(), all.workers.size());
    for (size_t worker = 0; worker < all.workers.size(); ++worker) {
      ASSERT_EQ(one.workers[worker].compute, all.workers[worker].compute);
      ASSERT_EQ(one.workers[worker].exposed_pipeline, all.workers[worker].exposed_pipeline);
      ASSERT_EQ(one.workers[worker].exposed_reduction, all.workers[worker].exposed_reduction);
      ASSERT_EQ(one.workers[worker].bubble, all.workers[worker].bubble);
    }
    ASSERT_EQ(one.spans.size(), all.spans.size());
    ASSERT_EQ(one.peak_memory_bytes, all.peak_memory_bytes);
  }
  EXPECT_GT(merged, 100);
}

}  // namespace
}  // namespace hdt::plan
