// pipeline_schedule_test.cc: 1F1B over ranges, and that the checker refuses broken schedules.
#include "training/engine/pipeline_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace hdt::training {
namespace {

using ::testing::HasSubstr;
using Schedules = std::vector<std::vector<PipelineStep>>;

Schedules all_stages(int stages, int micro_batches) {
  Schedules schedules;
  for (int stage = 0; stage < stages; ++stage) {
    schedules.push_back(one_forward_one_backward(stages, stage, micro_batches));
  }
  return schedules;
}

std::vector<int> bounds(int stages, int micro_batches) {
  std::vector<int> in_flight;
  for (int stage = 0; stage < stages; ++stage)
    in_flight.push_back(most_in_flight(stages, stage, micro_batches));
  return in_flight;
}

TEST(PipelineScheduleTest, HoldsForAllSizes) {
  for (int stages = 1; stages <= 12; ++stages) {
    for (int micro_batches = 1; micro_batches <= 24; ++micro_batches) {
      const Status status =
          check_pipeline(all_stages(stages, micro_batches), micro_batches, bounds(stages, micro_batches));
      EXPECT_TRUE(status.is_ok()) << stages << " stages, " << micro_batches << ": " << status.message();
    }
  }
}

TEST(PipelineScheduleTest, TakesTurnsAfterWarmUp) {
  using enum PipelineAction;
  const std::vector<PipelineStep> expected = {{kForward, 0},         {kSendActivation, 0},  {kForward, 1},
                                              {kSendActivation, 1},  {kReceiveGradient, 0}, {kBackward, 0},
                                              {kReceiveGradient, 1}, {kBackward, 1}};
  EXPECT_EQ(one_forward_one_backward(2, 0, 2), expected);
}

TEST(PipelineScheduleTest, ZeroBubbleHoldsForAllSizes) {
  for (int stages = 1; stages <= 12; ++stages) {
    for (int micro_batches = 1; micro_batches <= 24; ++micro_batches) {
      Schedules schedules;
      std::vector<int> in_flight;
      for (int stage = 0; stage < stages; ++stage) {
        schedules.push_back(zero_bubble(stages, stage, micro_batches));
        // No stage keeps more than the first of 1F1B does.
        in_flight.push_back(most_in_flight(stages, 0, micro_batches));
      }
      const Status status = check_pipeline(schedules, micro_batches, in_flight);
      EXPECT_TRUE(status.is_ok()) << stages << " stages, " << micro_batches << ": " << status.message();
    }
  }
}

TEST(PipelineScheduleTest, CheckerFindsAMissingGradientOfWeights) {
  Schedules schedules = {zero_bubble(1, 0, 2)};
  EXPECT_EQ(schedules[0].back().action, PipelineAction::kWeightGradient);
  schedules[0].pop_back();
  EXPECT_THAT(check_pipeline(schedules, 2, {2}).message(),
              HasSubstr("micro-batch 1 has no gradient of weights"));
  schedules = {zero_bubble(1, 0, 1)};
  std::swap(schedules[0][1], schedules[0][2]);
  EXPECT_THAT(check_pipeline(schedules, 1, {1}).message(), HasSubstr("gradient of weights out of turn"));
}

// A schedule with one thing wrong, and what the checker says.
TEST(PipelineScheduleTest, CheckerFindsADeadlock) {
  Schedules schedules = all_stages(2, 2);
  // Stage 0 waits for a gradient before it has sent what it is the gradient of.
  std::swap(schedules[0][1], schedules[0][4]);
  EXPECT_THAT(check_pipeline(schedules, 2, {2, 1}).message(), HasSubstr("waits for ever"));
}

TEST(PipelineScheduleTest, CheckerFindsAMissingBackward) {
  Schedules schedules = all_stages(1, 3);
  schedules[0].pop_back();
  EXPECT_THAT(check_pipeline(schedules, 3, {1}).message(), HasSubstr("micro-batch 2 was not run backward"));
}

TEST(PipelineScheduleTest, CheckerFindsBackwardBeforeForward) {
  Schedules schedules = all_stages(1, 1);
  std::ranges::reverse(schedules[0]);
  EXPECT_THAT(check_pipeline(schedules, 1, {1}).message(), HasSubstr("backward out of turn"));
}

TEST(PipelineScheduleTest, CheckerFindsTooManyInFlight) {
  EXPECT_THAT(check_pipeline(all_stages(3, 4), 4, {2, 2, 1}).message(), HasSubstr("more in flight"));
}

TEST(PipelineScheduleTest, CheckerFindsMessagesOutOfOrder) {
  Schedules schedules = all_stages(2, 2);
  std::swap(schedules[0][1].micro_batch, schedules[0][3].micro_batch);
  EXPECT_THAT(check_pipeline(schedules, 2, {2, 1}).message(), HasSubstr("sends an activation out of turn"));
}

TEST(PipelineScheduleTest, CheckerFindsAnUnreceivedMessage) {
  Schedules schedules = all_stages(2, 1);
  std::erase_if(schedules[0],
                [](PipelineStep step) { return step.action == PipelineAction::kReceiveGradient; });
  EXPECT_THAT(check_pipeline(schedules, 1, {1, 1}).message(), HasSubstr("without its gradient"));
}

}  // namespace
}  // namespace hdt::training
