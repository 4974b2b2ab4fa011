// plan_tool.h: hdt-plan as a program, and the example as files, for the tests of its commands.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/training/data/temporary_folder.h"
#include "tests/training/plan/examples.h"
#include "training/data/command.h"
#include "training/plan/describe/toml_files.h"

namespace hdt::plan {

inline training::CommandOutput hdt_plan(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), HDT_PLAN_PROGRAM);
  auto run = training::run_command(arguments);
  EXPECT_TRUE(run.is_ok()) << run.status().to_string();
  return run.is_ok() ? run.take() : training::CommandOutput{.exit_code = -1, .out = "", .err = ""};
}

// One line on stderr, nothing on stdout, exit status 2.
inline void expect_refused(const training::CommandOutput& output, const std::string& message) {
  EXPECT_EQ(output.exit_code, 2);
  EXPECT_EQ(output.out, "");
  EXPECT_THAT(output.err,
              ::testing::AllOf(::testing::StartsWith("hdt-plan: "), ::testing::HasSubstr(message)));
  EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
}

// The example as files.
class HdtPlanFiles : public ::testing::Test {
 protected:
  HdtPlanFiles() {
    training::write_all(file("plan.toml"), to_toml(example_plan()));
    training::write_all(file("profile.toml"), to_toml(example_profile()));
    training::write_all(file("cluster.toml"), to_toml(example_cluster()));
    training::write_all(file("model.toml"), to_toml(example_model()));
  }
  std::string file(const std::string& name) const { return folder_.file(name); }
  std::vector<std::string> on_plan(const std::string& command,
                                   const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {command, file("plan.toml"),    "-p", file("profile.toml"),
                                          "-c",    file("cluster.toml"), "-m", file("model.toml")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  const training::TemporaryFolder folder_;
};

}  // namespace hdt::plan
