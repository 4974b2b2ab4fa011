// hdt-plan as its users run it: what it prints, and with which exit status it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "training/data/command.h"

namespace hdt::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

training::CommandOutput hdt_plan(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), HDT_PLAN_PROGRAM);
  auto run = training::run_command(arguments);
  EXPECT_TRUE(run.is_ok()) << run.status().to_string();
  return run.is_ok() ? run.take() : training::CommandOutput{.exit_code = -1, .out = "", .err = ""};
}

// One line on stderr, nothing on stdout, exit status 2.
void expect_refused(const training::CommandOutput& output, const std::string& message) {
  EXPECT_EQ(output.exit_code, 2);
  EXPECT_EQ(output.out, "");
  EXPECT_THAT(output.err, AllOf(StartsWith("hdt-plan: "), HasSubstr(message)));
  EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
}

TEST(HdtPlan, WrongUsageAndRefusedInputsEndWith2) {
  expect_refused(hdt_plan({}), "subcommand is required");
  expect_refused(hdt_plan({"improve"}), "see hdt-plan --help");
  expect_refused(hdt_plan({"validate"}), "folder");
  expect_refused(hdt_plan({"validate", "/nonexistent"}), "/nonexistent/profiles.json: cannot be read");
}

TEST(HdtPlan, HelpHasExamples) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{{"--help"}, {"validate", "--help"}}) {
    const auto help = hdt_plan(arguments);
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.out, AllOf(HasSubstr("Example"), HasSubstr("  hdt-plan ")));
  }
}

}  // namespace
}  // namespace hdt::plan
