// goodput_test.cc: the closed form against failures that are played out, and the best interval against a
// scan.
#include "training/plan/predict/goodput.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "training/plan/predict/reliability.h"

namespace hdt::plan {
namespace {

TEST(Goodput, WithoutFailuresOnlyCheckpointsCost) {
  const FailureModel model{0, 10, 100};
  const Goodput goodput = expected_goodput(model, 90);
  EXPECT_DOUBLE_EQ(goodput.share, .9);
  EXPECT_DOUBLE_EQ(goodput.checkpoint_share, .1);
  EXPECT_DOUBLE_EQ(goodput.failure_share, 0);
  EXPECT_TRUE(std::isinf(best_goodput(model).interval_seconds));
  EXPECT_EQ(best_goodput(model).share, 1);
}

TEST(Goodput, TheClosedFormIsWhatHappens) {
  const unsigned seed = std::random_device()();
  std::mt19937_64 random(seed);
  const auto any = [&](double least, double most) {
    return std::exp(std::uniform_real_distribution(std::log(least), std::log(most))(random));
  };
  for (int round = 0; round < 30; ++round) {
    const FailureModel model{1 / any(1e3, 1e6), any(1, 300), any(1, 900)};
    const double interval = any(30, 3000);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round);
    constexpr int64_t kSegments = 40'000;
    const Goodput played = simulated_goodput(model, interval, kSegments, random());
    const Goodput expected = expected_goodput(model, interval);
    // A segment's time varies by no more than about its failures' mean cost; six standard deviations of the
    // mean.
    const double segment = interval + model.checkpoint_seconds;
    const double failures = std::expm1(segment * model.failures_per_second);
    const double cost = segment + model.restart_seconds;
    const double tolerance =
        6 * std::sqrt((failures + failures * failures) * 2 / kSegments) * cost / segment + 1e-9;
    EXPECT_NEAR(played.share / expected.share, 1, tolerance);
    EXPECT_NEAR(played.share + played.checkpoint_share + played.failure_share, 1, 1e-9);
    EXPECT_NEAR(played.checkpoint_share / expected.checkpoint_share, 1, tolerance);
  }
}

TEST(Goodput, TheBestIntervalIsTheBest) {
  for (const double mtbf : {100.0, 3600.0, 1e6}) {
    for (const double checkpoint : {.1, 20.0, 500.0}) {
      const FailureModel model{1 / mtbf, checkpoint, 30};
      const Goodput best = best_goodput(model);
      for (double interval = 1e-3 * mtbf; interval < 3 * mtbf; interval *= 1.01)
        EXPECT_LE(expected_goodput(model, interval).share, best.share * (1 + 1e-12));
      // Young's first order, where checkpoints are short against failures.
      if (checkpoint < 1e-4 * mtbf) {
        EXPECT_NEAR(best.interval_seconds / std::sqrt(2 * checkpoint * mtbf), 1, .02);
      }
    }
  }
}

TEST(Reliability, RatesAddUpAndSparesShortenRestarts) {
  const Cluster cluster{{{"a", "fast", 8, 1}, {"b", "slow", 4, 1}}};
  Reliability reliability;
  reliability.checkpoint_seconds = 5;
  reliability.restart_seconds = 600;
  reliability.node_mtbf_seconds = 1e6;
  reliability.device_mtbf_seconds = {{"fast", 1e5}};
  FailureModel model = failure_model(cluster, reliability);
  EXPECT_DOUBLE_EQ(model.failures_per_second, 8 / 1e5 + 2 / 1e6);
  EXPECT_DOUBLE_EQ(model.restart_seconds, 600);
  reliability.spare_nodes = 1;
  reliability.failover_seconds = 20;
  reliability.repair_seconds = 1 / model.failures_per_second;  // one in repair on average
  model = failure_model(cluster, reliability);
  const double free = std::exp(-1.0);
  EXPECT_NEAR(model.restart_seconds, free * 20 + (1 - free) * 600, 1e-9);
  reliability.spare_nodes = 50;
  EXPECT_NEAR(failure_model(cluster, reliability).restart_seconds, 20, 1e-6);
}

}  // namespace
}  // namespace hdt::plan
