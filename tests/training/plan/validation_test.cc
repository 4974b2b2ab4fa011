// validation_test.cc: fitting finds the factors that made the measurements, and leaves a right profile alone.
// The published set's bars are checked where HDT_VALIDATION_DIR names it.
#include "training/plan/validate/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <map>
#include <random>

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

// The same links and another model: what was learnt of links helps, and what was learnt of the first model's
// profile is left out. Other devices take neither.
TEST(Validation, OtherModelsTakeLinksAndOtherDevicesDoNot) {
  Calibration truth;
  truth.compute = 1.2;
  truth.point_to_point = 0.3;
  truth.allreduce = 0.5;
  std::vector<PublishedSet> sets(1, measured_with(truth));
  truth.compute = 1;
  sets.push_back(measured_with(truth));
  sets[1].name = sets[1].model.name = "other model";
  sets.push_back(measured_with({}));
  sets[2].name = "other devices";
  for (Node& node : sets[2].cluster.nodes) node.device += "-2";
  std::map<ComputeKey, LayerCost> compute;
  for (const auto& [key, cost] : sets[2].profile.compute)
    compute[{key.device + "-2", key.layer, key.tensor_parallel, key.micro_batch_size}] = cost;
  sets[2].profile.compute = compute;
  std::map<LinkKey, Link> links;
  for (const auto& [key, link] : sets[2].profile.links)
    links[{key.from + "-2", key.to + "-2", key.inside}] = link;
  sets[2].profile.links = links;
  std::vector<Validation> validations;
  for (const PublishedSet& set : sets) validations.push_back(validate(set).value());
  const auto transfers = validate_transfers(sets, validations);
  ASSERT_TRUE(transfers.is_ok()) << transfers.status().message();
  ASSERT_EQ(transfers.value().size(), 6u);
  const Transfer& to_model = transfers.value()[0];
  EXPECT_TRUE(to_model.other_model);
  EXPECT_FALSE(to_model.other_devices);
  EXPECT_GT(to_model.profile_step.mean, .2);
  EXPECT_LT(to_model.step.mean, .1);
  EXPECT_EQ(to_model.inside_interval, sets[1].rows.size());
  const Transfer& to_devices = transfers.value()[1];
  EXPECT_TRUE(to_devices.other_devices);
  EXPECT_EQ(to_devices.step.mean, 0);
}

TEST(Validation, LimitsThatAreHitAreNamed) {
  EXPECT_TRUE(limits_hit({}).empty());
  Calibration calibration;
  calibration.compute = 2;
  calibration.point_to_point = .05;
  calibration.peer_bytes = 16.0 * kGibibyte;
  EXPECT_THAT(limits_hit(calibration),
              testing::ElementsAre("compute is 2, its upper limit", "point_to_point is 0.05, its lower limit",
                                   testing::HasSubstr("peer_bytes is 1.72e+10, its upper limit")));
}

// Rows that scatter: about eight in ten are in the interval that the others make.
TEST(Validation, IntervalsHoldOnHeldOutRows) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::normal_distribution<double> error(0, .05);
  PublishedSet set = measured_with({});
  size_t inside = 0;
  size_t rows = 0;
  const std::vector<Measurement> exact = set.rows;
  for (int round = 0; round < 5; ++round) {
    for (size_t i = 0; i < exact.size(); ++i)
      set.rows[i].step_seconds = exact[i].step_seconds * std::exp(error(random));
    const auto validation = validate(set);
    ASSERT_TRUE(validation.is_ok()) << validation.status().message();
    inside += validation.value().inside_interval;
    rows += exact.size();
  }
  EXPECT_EQ(rows, 60u);
  // 49 are expected; rows of a set share their fit, so the bound is far from that.
  EXPECT_GE(inside, 30u);
  EXPECT_LT(inside, 60u);
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
  std::vector<Validation> validations;
  for (const PublishedSet& set : sets.value()) {
    SCOPED_TRACE(set.name);
    auto validation = validate(set);
    ASSERT_TRUE(validation.is_ok()) << validation.status().message();
    const bool mixed = set.cluster.device_kinds().size() > 1;
    EXPECT_LE(validation.value().step.mean, mixed ? .06 : .04);
    EXPECT_LE(validation.value().step.worst, mixed ? .15 : .09);
    EXPECT_LE(validation.value().memory.mean, .15);
    EXPECT_GE(validation.value().rank_correlation, .95);
    EXPECT_LE(validation.value().profile_step.mean, .08);
    validations.push_back(validation.take());
  }
  const auto transfers = validate_transfers(sets.value(), validations);
  ASSERT_TRUE(transfers.is_ok()) << transfers.status().message();
  for (const Transfer& transfer : transfers.value()) {
    SCOPED_TRACE(sets.value()[transfer.from].name + " to " + sets.value()[transfer.to].name);
    EXPECT_LE(transfer.step.mean, .08);
    EXPECT_LE(transfer.step.mean, transfer.profile_step.mean);
    EXPECT_GE(static_cast<double>(transfer.inside_interval), .7 * static_cast<double>(transfer.step.rows));
  }
}

}  // namespace
}  // namespace hdt::plan
