// validation_test.cc: fitting finds the factors that made the measurements, and leaves a right profile alone.
// The published set's bars are checked where HDT_VALIDATION_DIR names it.
#include "training/plan/validate/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>

#include "tests/training/plan/examples.h"
#include "training/plan/predict/predictor.h"
#include "training/plan/validate/pattern_search.h"

namespace hdt::plan {
namespace {

// Plans "measured" by the predictor itself under a known calibration.
PublishedSet measured_with(const Calibration& truth) {
  PublishedSet set{"made", example_model(), example_profile(), example_cluster(), {}};
  // Slow links, so that every factor shows.
  for (auto& [key, link] : set.profile.links) link.bandwidth = {{1, 5e7}};
  for (const int micro_batches : {1, 2}) {
    for (const int size : {1, 4}) {
      for (const std::vector<Stage>& stages : {std::vector<Stage>{{4, "a", 1}},
                                               {{1, "a", 1}, {3, "c", 1}},
                                               {{1, "a", 2}, {1, "b", 2}, {2, "c", 2}}}) {
        Measurement row;
        row.plan.replicas = {{size, micro_batches, stages}};
        if (stages.size() < 3) row.plan.replicas.push_back({size, micro_batches, {{4, "d", 1}}});
        row.plan.runtime.schedule = ScheduleKind::kLockstep;
        row.plan.runtime.overlap_gradients = false;
        row.plan.runtime.reduction = ReductionKind::kRing;
        row.name = "row " + std::to_string(set.rows.size());
        const auto prediction = predict({set.cluster, set.model, set.profile, truth}, row.plan);
        EXPECT_TRUE(prediction.is_ok()) << prediction.status().message();
        row.step_seconds = prediction.value().step_seconds;
        row.peak_memory_bytes = std::llround(prediction.value().most_memory_bytes());
        set.rows.push_back(row);
      }
    }
  }
  return set;
}

TEST(Validation, FindsTheFactorsThatMadeTheMeasurements) {
  Calibration truth;
  truth.compute = 1.2;
  truth.point_to_point = 0.3;
  truth.allreduce = 0.5;
  truth.activation = 0.7;
  truth.fixed_bytes = 2.0 * (1 << 30);
  truth.peer_bytes = 0.25 * (1 << 30);
  const PublishedSet set = measured_with(truth);
  const auto validation = validate(set);
  ASSERT_TRUE(validation.is_ok()) << validation.status().message();
  EXPECT_NEAR(validation.value().calibration.compute, 1.2, .02);
  EXPECT_NEAR(validation.value().calibration.point_to_point, 0.3, .02);
  EXPECT_NEAR(validation.value().calibration.allreduce, 0.5, .02);
  EXPECT_LT(validation.value().step.worst, .05);
  EXPECT_LT(validation.value().memory.worst, .03);
  EXPECT_GT(validation.value().profile_step.mean, .1);
  EXPECT_GT(validation.value().rank_correlation, .99);
}

TEST(Validation, ARightProfileIsLeftAlone) {
  const PublishedSet set = measured_with({});
  const auto validation = validate(set);
  ASSERT_TRUE(validation.is_ok()) << validation.status().message();
  EXPECT_EQ(validation.value().calibration.compute, 1);
  EXPECT_EQ(validation.value().calibration.allreduce, 1);
  EXPECT_LT(validation.value().step.worst, 1e-9);
}

TEST(Validation, RowsThatDoNotCountAreNotFittedTo) {
  PublishedSet set = measured_with({});
  set.rows[3].step_seconds *= 10;
  set.rows[3].left_out = "broken";
  const auto validation = validate(set);
  ASSERT_TRUE(validation.is_ok());
  EXPECT_EQ(validation.value().rows.size(), set.rows.size());
  EXPECT_LT(validation.value().step.worst, 1e-9);
  set.rows.resize(2);
  EXPECT_THAT(validate(set).status().message(), testing::HasSubstr("fewer than 3 rows"));
}

TEST(RankCorrelation, IsSpearmans) {
  EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3}, {10, 100, 1000}), 1);
  EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3}, {3, 2, 1}), -1);
  // 1 - 6 * sum d^2 / (n (n^2 - 1)) with d = 0, 1, 1, 0.
  EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3, 4}, {1, 3, 2, 4}), 1 - 6 * 2 / 60.0);
  EXPECT_NEAR(rank_correlation({1, 1, 2}, {1, 2, 3}), std::sqrt(3) / 2, 1e-12);
}

TEST(PatternSearch, FollowsARidgeAndKeepsToItsBounds) {
  const auto ridge = [](const std::vector<double>& x) {
    return std::abs(x[0] + x[1] - 3) + 0.01 * std::abs(x[0] - 2.5);
  };
  const std::vector<double> found = pattern_search({{0, -5, 5, 1, 1e-4}, {0, -5, 5, 1, 1e-4}}, ridge);
  EXPECT_NEAR(found[0] + found[1], 3, 1e-3);
  const auto away = [](const std::vector<double>& x) { return -x[0]; };
  EXPECT_EQ(pattern_search({{0, -1, 2, 1, 1e-3}}, away), std::vector<double>{2});
}

TEST(Validation, ThePublishedSetsBars) {
  const char* folder = ::getenv("HDT_VALIDATION_DIR");
  if (!folder) GTEST_SKIP() << "HDT_VALIDATION_DIR names no folder with a published set";
  const auto sets = import_published_sets(folder);
  ASSERT_TRUE(sets.is_ok()) << sets.status().message();
  for (const PublishedSet& set : sets.value()) {
    SCOPED_TRACE(set.name);
    const auto validation = validate(set);
    ASSERT_TRUE(validation.is_ok()) << validation.status().message();
    const bool mixed = set.cluster.device_kinds().size() > 1;
    EXPECT_LE(validation.value().step.mean, mixed ? .06 : .04);
    EXPECT_LE(validation.value().step.worst, mixed ? .15 : .09);
    EXPECT_LE(validation.value().memory.mean, .15);
    EXPECT_GE(validation.value().rank_correlation, .95);
  }
}

}  // namespace
}  // namespace hdt::plan
