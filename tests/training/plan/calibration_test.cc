// calibration_test.cc: calibrations as files, the interval they give, and own runs.
#include "training/plan/predict/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/training/data/temporary_folder.h"
#include "tests/training/plan/examples.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/validate/measured_runs.h"
#include "training/plan/validate/validation.h"

namespace hdt::plan {
namespace {

using ::testing::HasSubstr;

CalibrationRecord example_record() {
  CalibrationRecord record{"lab", {1.25, 0.5, 0.3, 0.4, 0.9, 1000, 10}, {1.02, 0.97, 1.1, 0.95, 1.0}};
  record.model = "small";
  record.devices = {"fast", "slow"};
  record.elsewhere.point_to_point = 0.7;
  record.elsewhere.allreduce = 0.8;
  record.elsewhere.fixed_bytes = 2000;
  record.elsewhere_ratios = {1.3, 0.9};
  return record;
}

TEST(CalibrationFile, ReadsBackTheSame) {
  const training::TemporaryFolder folder;
  for (const bool launch : {true, false}) {
    CalibrationRecord record = example_record();
    if (!launch) record.factors.launch.reset();
    training::write_all(folder.file("c.toml"), to_toml(record));
    const auto read = read_calibration(folder.file("c.toml"));
    ASSERT_TRUE(read.is_ok()) << read.status().message();
    EXPECT_EQ(read.value().factors, record.factors);
    EXPECT_EQ(read.value().ratios, record.ratios);
    EXPECT_EQ(read.value().name, "lab");
    EXPECT_EQ(read.value().model, "small");
    EXPECT_EQ(read.value().devices, record.devices);
    EXPECT_EQ(read.value().elsewhere, record.elsewhere);
    EXPECT_EQ(read.value().elsewhere_ratios, record.elsewhere_ratios);
  }
}

TEST(CalibrationFile, HoldsWhereItWasLearnt) {
  CalibrationRecord record = example_record();
  const UsedCalibration own = calibration_for(record, "small", {"slow"});
  EXPECT_EQ(own.factors, record.factors);
  EXPECT_EQ(own.ratios, record.ratios);
  EXPECT_EQ(own.foreign, "");
  // Another model on these devices keeps the links and the memory.
  const UsedCalibration model = calibration_for(record, "large", {"fast", "slow"});
  EXPECT_EQ(model.factors, record.elsewhere);
  EXPECT_EQ(model.ratios, record.elsewhere_ratios);
  EXPECT_THAT(model.foreign, HasSubstr("'lab' was learnt on model 'small', and this is 'large'"));
  // Links to a device that was not there are unknown.
  const UsedCalibration devices = calibration_for(record, "small", {"fast", "new"});
  EXPECT_EQ(devices.factors, Calibration());
  EXPECT_EQ(devices.ratios, record.elsewhere_ratios);
  EXPECT_THAT(devices.foreign, HasSubstr("learnt on devices fast, slow, and these are fast, new"));
  // A file by hand that names no model holds everywhere.
  record.model.clear();
  record.devices.clear();
  EXPECT_EQ(calibration_for(record, "large", {"new"}).factors, record.factors);
}

TEST(CalibrationFile, WrongFieldsAreNamed) {
  const training::TemporaryFolder folder;
  const auto refusal = [&](const std::string& text) {
    training::write_all(folder.file("c.toml"), text);
    const auto read = read_calibration(folder.file("c.toml"));
    EXPECT_FALSE(read.is_ok()) << text;
    return read.status().message();
  };
  EXPECT_THAT(refusal("name='a'\n"), HasSubstr("c.toml: measured_over_predicted: is missing"));
  EXPECT_THAT(refusal("name='a'\nmeasured_over_predicted=[1.0, -1]\n"),
              HasSubstr("measured_over_predicted: expected a list of positive numbers"));
  EXPECT_THAT(refusal("name='a'\ncompute=0\nmeasured_over_predicted=[]\n"),
              HasSubstr("compute: 0 given, expected more than 0"));
  EXPECT_THAT(refusal("name='a'\nmodel='m'\nmeasured_over_predicted=[]\n"),
              HasSubstr("devices: expected together with model"));
  EXPECT_THAT(refusal("name='a'\nmeasured_over_predicted=[]\n[[elsewhere]]\ncompute=2\n"),
              HasSubstr("elsewhere 1.measured_over_predicted: is missing"));
  EXPECT_THAT(
      refusal("name='a'\nmeasured_over_predicted=[]\n[[elsewhere]]\ncompute=2\nmeasured_over_predicted=[]\n"),
      HasSubstr("elsewhere 1.compute: unknown field"));
  EXPECT_THAT(refusal("name='a'\nmagic=1\nmeasured_over_predicted=[]\n"), HasSubstr("magic: unknown field"));
}

TEST(StepInterval, IsTheOrderStatisticOfTheResiduals) {
  UsedCalibration record;
  EXPECT_FALSE(step_interval(record, 2).has_value());
  record.ratios = {1.1};
  auto interval = step_interval(record, 2);
  EXPECT_DOUBLE_EQ(interval->coverage, 0.5);
  EXPECT_NEAR(interval->high, 2.2, 1e-12);
  EXPECT_NEAR(interval->low, 2 / 1.1, 1e-12);
  // The interval of nine rows ends at 0.8 * 10 = the eighth smallest error.
  record.ratios = {1.01, 1 / 1.02, 1.03, 1.04, 1 / 1.05, 1.06, 1.07, 1 / 1.08, 2};
  interval = step_interval(record, 1);
  EXPECT_DOUBLE_EQ(interval->coverage, 0.8);
  EXPECT_NEAR(interval->high, 1.08, 1e-12);
  // Rows of another model promise nothing, and the largest of their errors counts.
  record.foreign = "another model";
  interval = step_interval(record, 1);
  EXPECT_EQ(interval->coverage, 0);
  EXPECT_NEAR(interval->high, 2, 1e-12);
}

TEST(StepInterval, HoldsForTheShareItSays) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::student_t_distribution<double> error(3);
  int inside = 0;
  constexpr int kRounds = 4000;
  for (int round = 0; round < kRounds; ++round) {
    UsedCalibration record;
    for (int row = 0; row < 9; ++row) record.ratios.push_back(std::exp(.05 * error(random)));
    const auto interval = step_interval(record, 1);
    const double measured = std::exp(.05 * error(random));
    inside += interval->low <= measured && measured <= interval->high;
  }
  // Eight in ten; five standard deviations of the count.
  EXPECT_NEAR(inside, .8 * kRounds, 5 * std::sqrt(kRounds * .8 * .2));
}

TEST(MeasuredRuns, AreRowsOfASet) {
  const training::TemporaryFolder folder;
  training::write_all(folder.file("a.toml"), to_toml(example_plan()));
  training::write_all(folder.file("runs.toml"),
                      "name = 'own'\n[[run]]\nplan = 'a.toml'\nstep_seconds = 1.5\n"
                      "[[run]]\nname = 'again'\nplan = 'a.toml'\nstep_seconds = 2\npeak_memory_bytes = 7\n");
  PublishedSet set{"", example_model(), example_profile(), example_cluster(), {}};
  const Status status = read_measured_runs(folder.file("runs.toml"), set);
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(set.name, "own");
  ASSERT_EQ(set.rows.size(), 2u);
  EXPECT_EQ(set.rows[0].name, "a.toml");
  EXPECT_EQ(set.rows[0].step_seconds, 1.5);
  EXPECT_EQ(set.rows[0].plan, example_plan());
  EXPECT_EQ(set.rows[1].peak_memory_bytes, 7);

  training::write_all(folder.file("runs.toml"), "name = 'own'\n[[run]]\nplan = 'b.toml'\nstep_seconds = 1\n");
  EXPECT_THAT(read_measured_runs(folder.file("runs.toml"), set).message(), HasSubstr("b.toml"));
  training::write_all(folder.file("runs.toml"), "name = 'own'\n[[run]]\nplan = 'a.toml'\nstep_seconds = 0\n");
  EXPECT_THAT(read_measured_runs(folder.file("runs.toml"), set).message(),
              HasSubstr("runs.toml: run 1.step_seconds: 0 given"));
  training::write_all(folder.file("runs.toml"),
                      "name = '../own'\n[[run]]\nplan = 'a.toml'\nstep_seconds = 1\n");
  EXPECT_THAT(read_measured_runs(folder.file("runs.toml"), set).message(), HasSubstr("name without '/'"));
  set.model = example_model(5);
  training::write_all(folder.file("runs.toml"), "name = 'own'\n[[run]]\nplan = 'a.toml'\nstep_seconds = 1\n");
  EXPECT_THAT(read_measured_runs(folder.file("runs.toml"), set).message(),
              HasSubstr("a.toml: replica 1.stage.layers"));
}

}  // namespace
}  // namespace hdt::plan
