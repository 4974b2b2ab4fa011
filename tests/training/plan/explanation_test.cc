// explanation_test.cc: what binds a plan, and that the changes listed are the predictor's own.
#include "training/plan/explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/training/plan/examples.h"
#include "training/plan/predictor.h"

namespace hdt::plan {
namespace {

TEST(Explanation, TheSlowStageIsWhatHelps) {
  const Cluster cluster = example_cluster();
  const Model model = example_model();
  const Profile profile = example_profile();
  Plan plan;
  plan.replicas = {{1, 8, {{2, "a", 1}, {2, "b", 1}}}};  // the slow stage has the head, too
  const auto found = changes({cluster, model, profile, {}}, plan);
  ASSERT_TRUE(found.is_ok());
  EXPECT_EQ(found.value().front().what, "slow a tenth faster");
  const double step = predict({cluster, model, profile, {}}, plan).value().step_seconds;
  for (const Change& change : found.value()) EXPECT_LE(change.step_seconds, step + 1e-12) << change.what;
  EXPECT_LT(found.value().front().step_seconds, .95 * step);
}

TEST(Explanation, SlowLinksAreWhatHelps) {
  const Cluster cluster = example_cluster();
  const Model model = example_model();
  Profile profile = example_profile();
  profile.links[{"fast", "fast", false}].bandwidth = {{1, 1e6}};
  Plan plan;
  plan.replicas = {{1, 2, {{4, "a", 1}}}, {1, 2, {{4, "c", 1}}}};
  const auto found = changes({cluster, model, profile, {}}, plan);
  ASSERT_TRUE(found.is_ok());
  EXPECT_EQ(found.value().front().what, "link fast - fast twice as fast");
  const Prediction prediction = predict({cluster, model, profile, {}}, plan).value();
  EXPECT_STREQ(binding_part(prediction.workers[0]), "gradient reduction");
}

}  // namespace
}  // namespace hdt::plan
