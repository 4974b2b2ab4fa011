#include "training/data/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hdt::training {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(Command, ReturnsOutputErrorsAndExitCode) {
  const auto run = run_command({"sh", "-c", "echo out; echo err >&2; exit 3"});
  ASSERT_TRUE(run.is_ok()) << run.status().to_string();
  EXPECT_EQ(run.value().out, "out\n");
  EXPECT_EQ(run.value().err, "err\n");
  EXPECT_EQ(run.value().exit_code, 3);
}

TEST(Command, StandardInputIsEmpty) {
  const auto run = run_command({"cat"});
  ASSERT_TRUE(run.is_ok()) << run.status().to_string();
  EXPECT_EQ(run.value().out, "");
  EXPECT_EQ(run.value().exit_code, 0);
}

TEST(Command, ASignalIsAnExitCode) {
  const auto run = run_command({"sh", "-c", "kill -KILL $$"});
  ASSERT_TRUE(run.is_ok()) << run.status().to_string();
  EXPECT_EQ(run.value().exit_code, 128 + 9);
}

TEST(Command, AMissingProgramIsNamed) {
  const auto run = run_command({"no-such-program-of-hdt"});
  ASSERT_FALSE(run.is_ok());
  EXPECT_THAT(run.status().message(), HasSubstr("cannot run 'no-such-program-of-hdt': No such file"));
}

TEST(Command, IsKilledAtTheDeadline) {
  const auto run = run_command({"sleep", "300"}, {.time = milliseconds(100)});
  EXPECT_EQ(run.status().code(), Code::kTimeout);
  EXPECT_THAT(run.status().message(), HasSubstr("'sleep' did not end within 100 ms"));
}

TEST(Command, WhatItStartedIsKilledToo) {
  // The shell is gone at once; its child holds the pipe.
  const auto run = run_command({"sh", "-c", "sleep 300 & exit 0"}, {.time = milliseconds(300)});
  EXPECT_EQ(run.status().code(), Code::kTimeout);
}

TEST(Command, EndlessOutputIsCutOff) {
  const auto run = run_command({"yes"}, {.output_bytes = 100000});
  ASSERT_FALSE(run.is_ok());
  EXPECT_THAT(run.status().message(), HasSubstr("'yes' printed more than 100000 bytes"));
}

}  // namespace
}  // namespace hdt::training
