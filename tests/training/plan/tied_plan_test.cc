// tied_plan_test.cc: models whose embedding and head share a matrix (tied_parameter_bytes): it is held once
// where a stage has both uses, and its gradients are summed over the ranks of both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/training/plan/examples.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/predict/equal_replicas.h"
#include "training/plan/predict/predictor.h"
#include "training/plan/search/search_space.h"

namespace hdt::plan {
namespace {

using testing::HasSubstr;

constexpr double kTiedMib = 1 << 20;

class TiedPlan : public ::testing::Test {
 protected:
  // 6 of the 8 MiB of the embedding and of the head are one matrix.
  TiedPlan() { model_.tied_parameter_bytes = {{1, 6 << 20}, {2, 3 << 20}}; }

  PredictionInputs inputs() const { return {cluster_, model_, profile_, {}}; }
  Prediction predicted(const Plan& plan) const {
    const auto result = predict(inputs(), plan);
    EXPECT_TRUE(result.is_ok()) << result.status().message();
    return result.is_ok() ? result.value() : Prediction{};
  }

  Cluster cluster_ = example_cluster();
  Model model_ = example_model();
  Profile profile_ = example_profile();
};

TEST_F(TiedPlan, AStageWithBothUsesHasTheMatrixOnce) {
  Plan plan;
  plan.replicas = {{1, 2, {{4, "a", 1}}}};
  const StageMemory whole = worker_memory(inputs(), plan)[0];
  EXPECT_EQ(whole.parameter_bytes, (8 + 16 + 2) << 20);
  // Three quarters of the head's update are the matrix.
  EXPECT_NEAR(predicted(plan).workers[0].optimizer, .001 + 4 * .002 + .00025, 1e-12);
  plan.replicas = {{1, 2, {{2, "a", 1}, {2, "c", 1}}}};
  const auto memory = worker_memory(inputs(), plan);
  EXPECT_EQ(memory[0].parameter_bytes, (8 + 8) << 20);
  EXPECT_EQ(memory[1].parameter_bytes, (8 + 8) << 20);
  // The costs of a search are the same.
  const RangeCosts costs(inputs(), "fast", 1, 1);
  EXPECT_EQ(costs.range(0, 6).parameter_bytes, (8 + 16 + 2) << 20);
  EXPECT_NEAR(costs.range(0, 6).update, .001 + 4 * .002 + .00025, 1e-12);
  EXPECT_EQ(costs.range(0, 3).parameter_bytes, (8 + 8) << 20);
  EXPECT_EQ(costs.range(3, 6).parameter_bytes, (8 + 8) << 20);
}

// One replica of two stages reduces the matrix, and nothing else: 6 MiB over each hop at 1 GB/s, after the
// last backward of the first stage.
TEST_F(TiedPlan, OneReplicaOfSeveralStagesReducesTheMatrix) {
  Plan plan;
  plan.replicas = {{1, 2, {{2, "a", 1}, {2, "c", 1}}}};
  const auto reductions = find_equal_replicas(inputs(), plan).reductions;
  ASSERT_EQ(reductions.size(), 1u);
  EXPECT_EQ(reductions[0].units.first, training::kTiedUnit);
  EXPECT_EQ(reductions[0].owners, 2);
  EXPECT_EQ(reductions[0].bytes, 6 * kTiedMib);
  const Prediction tied = predicted(plan);
  model_.tied_parameter_bytes.clear();
  EXPECT_TRUE(find_equal_replicas(inputs(), plan).reductions.empty());
  const Prediction untied = predicted(plan);
  EXPECT_NEAR(tied.step_seconds, untied.step_seconds + 6 * kTiedMib / 1e9, 1e-9);
  double last_backward = 0;
  for (const Span& span : tied.spans) {
    if (span.kind == SpanKind::kBackward) last_backward = std::max(last_backward, span.end);
  }
  for (const Span& span : tied.spans) {
    if (span.kind == SpanKind::kReduction) {
      EXPECT_NEAR(span.start, last_backward, 1e-12);
    }
  }
}

// A replica of one stage and one of two: three owners. The other sets have what is left of embedding and
// head.
TEST_F(TiedPlan, ReplicasOfOneStageAndOfSeveralShareTheMatrix) {
  Plan plan;
  plan.replicas = {{1, 2, {{4, "a", 1}}}, {1, 2, {{2, "c", 1}, {2, "d", 1}}}};
  for (const bool overlap : {false, true}) {
    plan.runtime.overlap_gradients = overlap;
    double bytes = 0;
    int of_matrix = 0;
    for (const Reduction& reduction : find_equal_replicas(inputs(), plan).reductions) {
      const bool matrix = reduction.units.first == training::kTiedUnit;
      of_matrix += matrix;
      EXPECT_EQ(reduction.owners, matrix ? 3 : 2);
      bytes += reduction.bytes;
    }
    EXPECT_EQ(of_matrix, 1);
    EXPECT_EQ(bytes, (6 + 2 + 16 + 2) * kTiedMib);
    const Prediction prediction = predicted(plan);
    for (const WorkerTime& time : prediction.workers) EXPECT_NEAR(time.sum(), prediction.step_seconds, 1e-9);
  }
}

// The states of the matrix are shared by three owners, those of all else by two.
TEST_F(TiedPlan, ItsStatesAreShardedAmongAllOwners) {
  Plan plan;
  plan.runtime.use_distributed_optimizer = true;
  plan.replicas = {{1, 2, {{4, "a", 1}}}, {1, 2, {{2, "c", 1}, {2, "d", 1}}}};
  const auto memory = worker_memory(inputs(), plan);
  EXPECT_DOUBLE_EQ(memory[0].updated_bytes, (6. / 3 + (2 + 16 + 2) / 2.) * kTiedMib);
  EXPECT_DOUBLE_EQ(memory[1].updated_bytes, (6. / 3 + (2 + 8) / 2.) * kTiedMib);
  EXPECT_DOUBLE_EQ(memory[2].updated_bytes, (6. / 3 + (8 + 2) / 2.) * kTiedMib);
  const Prediction prediction = predicted(plan);
  EXPECT_NEAR(prediction.workers[1].optimizer, .75e-3 / 3 + (.25e-3 + 2 * .002) / 2, 1e-12);
  for (const WorkerTime& time : prediction.workers) EXPECT_NEAR(time.sum(), prediction.step_seconds, 1e-9);
}

// LLaMA's embedding is nothing but the matrix.
TEST_F(TiedPlan, AnEmbeddingThatIsAllTiedHasNothingElseToReduce) {
  model_.tied_parameter_bytes = {{1, 8 << 20}, {2, 4 << 20}};
  Plan plan;
  plan.runtime.bucket_bytes = 1;
  plan.replicas = {{1, 2, {{4, "a", 1}}}, {1, 2, {{4, "c", 1}}}};
  EXPECT_EQ(find_equal_replicas(inputs(), plan).reductions.size(), 1u + 4u);
  EXPECT_TRUE(check_model(model_).is_ok());
}

TEST_F(TiedPlan, WhatDoesNotFitTheLayersIsRefused) {
  EXPECT_TRUE(check_model(model_).is_ok());
  EXPECT_THAT(to_toml(model_), HasSubstr("tied_parameter_bytes = [[1, 6291456], [2, 3145728], ]"));
  model_.tied_parameter_bytes = {{1, 9 << 20}, {2, 1}};
  EXPECT_EQ(check_model(model_).message(),
            "tied_parameter_bytes: 9437184 given for degree 1, but 'embedding' has 8388608 in all");
  model_.tied_parameter_bytes = {{1, 1}};
  EXPECT_EQ(check_model(model_).message(), "tied_parameter_bytes: none for degree 2, which 'embedding' has");
}

}  // namespace
}  // namespace hdt::plan
