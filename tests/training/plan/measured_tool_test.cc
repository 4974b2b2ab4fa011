// measured_tool_test.cc: hdt-plan on what was measured: own runs, calibrations, published sets, and
// micro-batch sizes between and beyond the measured ones.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/training/plan/plan_tool.h"
#include "tests/training/plan/small_published_set.h"
#include "tests/training/plan/small_trials.h"
#include "training/plan/describe/toml_files.h"

namespace hdt::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(HdtPlanFiles, SizesThatWereNotMeasuredAreDerivedAndSaidSo) {
  Plan plan = example_plan();
  plan.replicas[0].micro_batch_size = 8;
  training::write_all(file("plan.toml"), to_toml(plan));
  for (const char* command : {"predict", "explain"}) {
    const auto output = hdt_plan(on_plan(command));
    EXPECT_EQ(output.exit_code, 0) << output.err;
    EXPECT_THAT(output.err,
                AllOf(HasSubstr("warning: device 'fast' with tensor_parallel 1: micro_batch_size 8 was "
                                "not measured: its times continue those of 1, 2, 4"),
                      HasSubstr("device 'slow'")));
  }
  training::write_all(file("runs.toml"),
                      "name = \"own\"\n[[run]]\nplan = \"plan.toml\"\nstep_seconds = 1\n"
                      "[[run]]\nplan = \"plan.toml\"\nstep_seconds = 1.1\n"
                      "[[run]]\nplan = \"plan.toml\"\nstep_seconds = 1.2\n");
  const auto validated = hdt_plan({"validate", file("runs.toml"), "-p", file("profile.toml"), "-c",
                                   file("cluster.toml"), "-m", file("model.toml")});
  EXPECT_EQ(validated.exit_code, 0) << validated.err;
  EXPECT_THAT(validated.err, HasSubstr("micro_batch_size 8 was not measured"));
  // Too few rows for an interval, which is said.
  EXPECT_THAT(validated.out, HasSubstr("intervals: 2 other rows are too few for 80 %"));
}

TEST_F(HdtPlanFiles, OwnRunsCalibrateAPrediction) {
  const double step = nlohmann::json::parse(hdt_plan(on_plan("predict", {"--json"})).out)["step_seconds"];
  std::string runs = "name = \"own\"\n";
  for (int run = 0; run < 4; ++run)
    runs += fmt::format("[[run]]\nplan = \"plan.toml\"\nstep_seconds = {}\n", step * (1 + .01 * run));
  training::write_all(file("runs.toml"), runs);
  const std::vector<std::string> on_what = {"-p", file("profile.toml"), "-c", file("cluster.toml"),
                                            "-m", file("model.toml")};
  std::vector<std::string> arguments = {"validate", file("runs.toml"), "--calibrations", file(".")};
  arguments.insert(arguments.end(), on_what.begin(), on_what.end());
  const auto validated = hdt_plan(arguments);
  ASSERT_EQ(validated.exit_code, 0) << validated.err;
  EXPECT_THAT(validated.out,
              AllOf(StartsWith("## own"), HasSubstr("profile as it is: mean 1.5 %, worst 2.9 %")));
  const auto output = hdt_plan(on_plan("predict", {"--json", "--calibration", file("own.toml")}));
  ASSERT_EQ(output.exit_code, 0) << output.err;
  const auto json = nlohmann::json::parse(output.out);
  EXPECT_EQ(json["interval"]["rows"], 4);
  EXPECT_LE(json["interval"]["low_seconds"].get<double>(), json["step_seconds"].get<double>());
  EXPECT_THAT(hdt_plan(on_plan("predict", {"--calibration", file("own.toml")})).out,
              HasSubstr("80 % of plans like the 4 measured ones"));
  EXPECT_EQ(hdt_plan(on_plan("explain", {"--calibration", file("own.toml")})).exit_code, 0);

  // On another model the calibration says what it leaves out, and promises nothing.
  Model other = example_model();
  other.name = "other";
  training::write_all(file("model.toml"), to_toml(other));
  const auto foreign = hdt_plan(on_plan("predict", {"--calibration", file("own.toml")}));
  EXPECT_THAT(foreign.err,
              HasSubstr("warning: calibration 'own' was learnt on model 'small', and this is 'other'"));
  EXPECT_THAT(foreign.out, HasSubstr("the largest error of 4 measured plans; they are of another model"));
  EXPECT_TRUE(
      nlohmann::json::parse(hdt_plan(on_plan("predict", {"--json", "--calibration", file("own.toml")}))
                                .out)["interval"]["coverage"]
          .is_null());
  training::write_all(file("model.toml"), to_toml(example_model()));

  expect_refused(hdt_plan({"validate", file("runs.toml")}), "--profile: is missing");
  expect_refused(hdt_plan({"validate", folder_.file("."), "-p", file("profile.toml")}), "--profile: given");
  training::write_all(file("bad.toml"), "name = 'b'\nmeasured_over_predicted = 3\n");
  expect_refused(hdt_plan(on_plan("predict", {"--calibration", file("bad.toml")})),
                 "bad.toml: measured_over_predicted: expected a list");
}

// Whatever a published folder says, its files say, too.
TEST(HdtPlan, AnImportedSetIsValidatedAsThePublishedOne) {
  const training::TemporaryFolder folder;
  const SmallSet published;
  published.write(folder);
  for (const int batch : {4, 16}) {
    SmallSet other = published;
    other.plan["gbs"] = batch;
    other.plan["real"] = 1.0 * batch;
    training::write_all(folder.file(fmt::format("plans-x/plan_config_G{}.json", batch)), other.plan.dump());
  }
  const std::vector<std::string> import = {"import", folder.path(), "--output", folder.file("out/lab")};
  const auto output = hdt_plan(import);
  ASSERT_EQ(output.exit_code, 0) << output.err;
  const std::string set = folder.file("out/lab/plans-x");
  EXPECT_EQ(output.out, set + ": model m, 2 nodes, 3 measured plans\n");
  const auto direct = hdt_plan({"validate", folder.path(), "--json"});
  const auto imported = hdt_plan({"validate", set + "/runs.toml", "-p", set + "/profile.toml", "-c",
                                  set + "/cluster.toml", "-m", set + "/model.toml", "--json"});
  ASSERT_EQ(direct.exit_code + imported.exit_code, 0) << direct.err << imported.err;
  EXPECT_EQ(nlohmann::json::parse(direct.out), nlohmann::json::parse(imported.out));
  EXPECT_EQ(nlohmann::json::parse(direct.out)[0]["rows"].size(), 3U);
  const auto predicted = hdt_plan({"predict", set + "/plan-N2.toml", "-p", set + "/profile.toml", "-c",
                                   set + "/cluster.toml", "-m", set + "/model.toml"});
  EXPECT_EQ(predicted.exit_code, 0) << predicted.err;
  // Files that are there may have been edited.
  expect_refused(hdt_plan(import), "holds files already");
  expect_refused(hdt_plan({"import", folder.path()}), "--output");
  expect_refused(hdt_plan({"import", "/nonexistent", "--output", folder.file("other")}), "/nonexistent");
  EXPECT_FALSE(std::filesystem::exists(folder.file("other")));
}

// Trials become the same files, and say the same as before.
TEST(HdtPlan, ImportedTrialsAreValidatedAsTheirFile) {
  const training::TemporaryFolder folder;
  write_small_trials(folder);
  const std::string trials = folder.file("trials.toml");
  const auto direct = hdt_plan({"validate", trials, "--json", "--calibrations", folder.path()});
  ASSERT_EQ(direct.exit_code, 0) << direct.err;
  const auto json = nlohmann::json::parse(direct.out);
  EXPECT_EQ(json[0]["set"], "lab");
  EXPECT_EQ(json[0]["rows"].size(), 4U);
  EXPECT_EQ(json[0]["rows"][3]["counted"], false);
  EXPECT_THAT(training::read_all(folder.file("lab.toml")), StartsWith("name = \"lab\""));
  const std::vector<std::string> import = {"import", trials, "--output", folder.file("out")};
  const auto output = hdt_plan(import);
  ASSERT_EQ(output.exit_code, 0) << output.err;
  const std::string set = folder.file("out/lab");
  EXPECT_EQ(output.out, set + ": model small, 4 nodes, 4 measured plans\n");
  // The memory of the devices is known, unlike that of a published set.
  EXPECT_THAT(training::read_all(set + "/cluster.toml"), StartsWith("[[node]]"));
  const std::vector<std::string> on_what = {"-p", set + "/profile.toml", "-c", set + "/cluster.toml",
                                            "-m", set + "/model.toml"};
  std::vector<std::string> arguments = {"validate", set + "/runs.toml", "--json"};
  arguments.insert(arguments.end(), on_what.begin(), on_what.end());
  const auto imported = hdt_plan(arguments);
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  EXPECT_EQ(nlohmann::json::parse(imported.out), json);
  arguments[1] = trials;
  expect_refused(hdt_plan(arguments), "--profile: given, but");
  expect_refused(hdt_plan(import), "holds files already");
  training::write_all(trials, "trials = 1\n");
  expect_refused(hdt_plan({"validate", trials}), "trials.toml: name: is missing");
}

}  // namespace
}  // namespace hdt::plan
