// trials_test.cc: trials of a cluster, with everything that their layouts can say, and what is refused.
#include "training/plan/validate/trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/training/data/temporary_folder.h"
#include "tests/training/plan/examples.h"
#include "tests/training/plan/small_trials.h"
#include "training/plan/predict/predictor.h"
#include "training/plan/validate/validation.h"

namespace hdt::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Trials, AreASetWithTheFilesThatTheyName) {
  const training::TemporaryFolder folder;
  write_small_trials(folder);
  const std::string path = folder.file("trials.toml");
  EXPECT_TRUE(has_trials(path));
  EXPECT_FALSE(has_trials(folder.file("model.toml")));
  EXPECT_FALSE(has_trials(folder.path()));
  const auto sets = read_trials(path);
  ASSERT_TRUE(sets.is_ok()) << sets.status().message();
  ASSERT_EQ(sets.value().size(), 1U);
  const PublishedSet& set = sets.value()[0];
  EXPECT_EQ(set.name, "lab");
  EXPECT_TRUE(set.model.has_tied_unit() && set.model.has_sums());
  EXPECT_EQ(set.cluster.nodes.size(), 4U);
  ASSERT_EQ(set.rows.size(), 4U);
  EXPECT_EQ(set.rows[0].name, "trial-1");
  EXPECT_EQ(set.rows[0].plan, example_plan());
  EXPECT_EQ(set.rows[1].name, "lockstep");
  EXPECT_EQ(set.rows[1].step_seconds, 1.25);
  EXPECT_EQ(set.rows[1].peak_memory_bytes, 600'000'000);
  EXPECT_EQ(set.rows[1].plan.runtime.schedule, ScheduleKind::kLockstep);
  EXPECT_EQ(set.rows[3].left_out, "the network was busy");
  const auto validation = validate(set);
  ASSERT_TRUE(validation.is_ok()) << validation.status().message();
  EXPECT_EQ(validation.value().step.rows, 3U);
}

// Each of the three makes the step of a layout longer, by what it has to wait for.
TEST(Trials, TiesSumsAndLockstepAreInThePrediction) {
  const training::TemporaryFolder folder;
  write_small_trials(folder);
  const auto sets = read_trials(folder.file("trials.toml"));
  ASSERT_TRUE(sets.is_ok()) << sets.status().message();
  const PublishedSet& set = sets.value()[0];
  const auto seconds = [&](const Model& model, const Plan& plan) {
    const auto found = predict_seconds({set.cluster, model, set.profile, {}}, plan);
    EXPECT_TRUE(found.is_ok()) << found.status().message();
    return found.is_ok() ? found.value() : 0;
  };
  const Plan& lockstep = set.rows[1].plan;
  Plan background = lockstep;
  background.runtime.background_send_bytes.reset();
  EXPECT_GT(seconds(set.model, lockstep), seconds(set.model, background));
  const Plan& two_devices = set.rows[2].plan;
  const double all = seconds(set.model, two_devices);
  Model untied = set.model;
  untied.tied_parameter_bytes.clear();
  EXPECT_LT(seconds(untied, two_devices), all);
  Model without_sums = set.model;
  for (LayerKind& kind : without_sums.layers) {
    kind.forward_sums.clear();
    kind.backward_sums.clear();
  }
  EXPECT_LT(seconds(without_sums, two_devices), all);
}

TEST(Trials, WhatIsWrongIsRefusedWithFileAndField) {
  const training::TemporaryFolder folder;
  const std::string path = folder.file("trials.toml");
  const auto reason = [&](const std::string& what, const std::string& with) {
    write_small_trials(folder);
    std::string text = training::read_all(path);
    const size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    training::write_all(path, text.replace(at, what.size(), with));
    const auto sets = read_trials(path);
    EXPECT_EQ(sets.status().code(), Code::kConfig) << with;
    EXPECT_THAT(sets.status().message(), StartsWith(folder.path()));
    return sets.status().message();
  };
  EXPECT_THAT(reason("step_seconds = 1.25", "step_seconds = -1"),
              HasSubstr("trials.toml: trials 2.step_seconds: -1 given"));
  EXPECT_THAT(reason("step_seconds = 1.25", ""), HasSubstr("trials 2.step_seconds: is missing"));
  EXPECT_THAT(reason("step_seconds = 1.25", "step_seconds = 1.25\ncolour = 1"),
              HasSubstr("trials 2.colour: unknown field"));
  EXPECT_THAT(reason("name = \"lockstep\"", "name = \"a/b\""),
              HasSubstr("trials 2.name: expected a name of a file, of at most 100 bytes and without '/'"));
  EXPECT_THAT(reason("name = \"lockstep\"", "name = \"" + std::string(101, 'a') + "\""),
              HasSubstr("trials 2.name: expected a name"));
  EXPECT_THAT(reason("name = \"lockstep\"", "name = \"trial-1\""),
              HasSubstr("trials 2.name: 'trial-1' given before, expected another name"));
  EXPECT_THAT(reason("name = \"lab\"", "name = \"..\""), HasSubstr("trials.toml: name: expected a name"));
  EXPECT_THAT(reason("model = \"model.toml\"", ""), HasSubstr("trials.toml: model: is missing"));
  EXPECT_THAT(reason("\"profile.toml\"", "\"none.toml\""), HasSubstr("none.toml"));
  EXPECT_THAT(reason("plan = \"plan.toml\"", "plan = \"none.toml\""), HasSubstr("none.toml"));
  EXPECT_THAT(reason("plan = \"plan.toml\"", ""), HasSubstr("trials 1.replica: is missing"));
  EXPECT_THAT(reason("name = \"lockstep\"", "plan = \"plan.toml\""),
              HasSubstr("trials 2.background_send_bytes: unknown field"));
  // Layouts against themselves, and against the cluster.
  EXPECT_THAT(reason("layers = 1\n", "layers = 1\nrecompute_layers = 9\n"),
              HasSubstr("trials 2.replica: replica 1.stage 2.recompute_layers"));
  EXPECT_THAT(reason("node = \"c\"", "node = \"x\""), HasSubstr("trials.toml: trials 'lockstep': replica 1"));
}

}  // namespace
}  // namespace hdt::plan
