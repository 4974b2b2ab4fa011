// joining_test.cc: a rank that never joins: the others name it, and do not wait for ever.
#include "tests/training/train_command/small_run.h"

namespace hdt::training::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Two ranks of mpirun; rank 1 does `instead` and is no hdt-train.
ProgramResult train_without_rank_1(const std::string& instead, const std::string& variables) {
  quiet();
  return run_program("env " + variables + " " + ranks(2) + "sh -c 'test $OMPI_COMM_WORLD_RANK = 0 || " +
                         instead + "; exec " + HDT_TRAIN + kSmall + kText +
                         " --pipeline-model-parallel-size 2'",
                     kTimeLimit);
}

// mpirun waits for the other ranks after one that ends well. After 10 s comes the line that names it.
TEST(TrainJoining, ARankThatDoesNotJoinIsNamedAndGivenUp) {
  const ProgramResult run = train_without_rank_1("exit 0", "HDT_LOG_LEVEL=warn HDT_TIMEOUT_MS=13000");
  EXPECT_NE(run.exit_status, 0) << run.output;
  EXPECT_THAT(run.output,
              AllOf(HasSubstr("making a group of 2 ranks (class default): rank 1 did not join yet"),
                    HasSubstr("hdt-train: deadline passed: making a group of 2 ranks: rank 1 did "
                              "not join in time")));
}

// The deadline is the default one of ten minutes, far above the bound of run_program().
TEST(TrainJoining, ARankThatFailsBeforeItJoinsEndsTheJob) {
  for (const char* instead : {"exit 3", "kill -9 $$"}) {
    const ProgramResult run = train_without_rank_1(instead, "HDT_LOG_LEVEL=error");
    EXPECT_NE(run.exit_status, 0) << run.output;
    EXPECT_NE(run.exit_status, 124) << "the others have waited; " << run.output;
  }
}

TEST(TrainJoining, TheDeadlineIsAFlag) {
  expect_refused(train(kText + " --distributed-timeout-minutes 0"), 2, "--distributed-timeout-minutes");
  const ProgramResult run = train(kText + " --distributed-timeout-minutes 2");
  EXPECT_EQ(run.exit_status, 0) << run.output;
}

}  // namespace
}  // namespace hdt::training::testing
