// pipeline_schedule_test.cc: 1F1B over ranges, and that the checker refuses broken schedules.
#include "training/engine/schedules.h"

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

// No schedule lets a stage wait for ever, forget a micro-batch or hold more than its formula says.
TEST(PipelineScheduleTest, EveryKindHoldsForAllSizes) {
  for (const ScheduleKind kind : kScheduleKinds) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int micro_batches = 1; micro_batches <= 32; ++micro_batches) {
        Schedules schedules;
        std::vector<int> in_flight;
        for (int stage = 0; stage < stages; ++stage) {
          schedules.push_back(steps_of(kind, stages, stage, micro_batches));
          in_flight.push_back(most_in_flight(kind, stages, stage, micro_batches));
          EXPECT_EQ(in_flight.back(), most_in_flight(schedules.back()));
        }
        const Status status = check_pipeline(schedules, micro_batches, in_flight);
        EXPECT_TRUE(status.is_ok()) << schedule_name(kind) << ", " << stages << " stages, " << micro_batches
                                    << " micro-batches: " << status.message();
      }
    }
  }
}

TEST(PipelineScheduleTest, GpipeRunsAllForwardsFirst) {
  using enum PipelineAction;
  const std::vector<PipelineStep> expected = {
      {kReceiveActivation, 0}, {kForward, 0},      {kReceiveActivation, 1}, {kForward, 1},
      {kBackward, 0},          {kSendGradient, 0}, {kBackward, 1},          {kSendGradient, 1}};
  EXPECT_EQ(gpipe(2, 1, 2), expected);
}

TEST(PipelineScheduleTest, EveryNameIsFound) {
  for (const ScheduleKind kind : kScheduleKinds) {
    const Result<ScheduleKind> found = schedule_of(schedule_name(kind));
    ASSERT_TRUE(found.is_ok());
    EXPECT_EQ(found.value(), kind);
    EXPECT_THAT(schedule_names(), HasSubstr(schedule_name(kind)));
  }
  EXPECT_THAT(schedule_of("1F1B").status().message(), HasSubstr("'1F1B' given, expected gpipe, 1f1b"));
}

TEST(PipelineScheduleTest, TakesTurnsAfterWarmUp) {
  using enum PipelineAction;
  const std::vector<PipelineStep> expected = {{kForward, 0},         {kSendActivation, 0},  {kForward, 1},
                                              {kSendActivation, 1},  {kReceiveGradient, 0}, {kBackward, 0},
                                              {kReceiveGradient, 1}, {kBackward, 1}};
  EXPECT_EQ(one_forward_one_backward(2, 0, 2), expected);
}

// The last stage alternates at once; each stage before it has three forwards more in its warm-up.
TEST(PipelineScheduleTest, EagerRunsThreeForwardsAheadForEachStageBehind) {
  const auto warm_up = [](int stages, int stage, int micro_batches) {
    int forwards = 0;
    for (const PipelineStep& step : steps_of(ScheduleKind::kEager, stages, stage, micro_batches)) {
      if (step.action == PipelineAction::kBackward) break;
      forwards += step.action == PipelineAction::kForward;
    }
    return forwards;
  };
  EXPECT_EQ(warm_up(3, 0, 32), 7);
  EXPECT_EQ(warm_up(3, 1, 32), 4);
  EXPECT_EQ(warm_up(3, 2, 32), 1);
  EXPECT_EQ(warm_up(3, 0, 5), 5);
  EXPECT_EQ(most_in_flight(ScheduleKind::kEager, 3, 0, 32), 7);
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

Schedules interleaved(int stages, int chunks, int micro_batches) {
  Schedules schedules;
  for (int stage = 0; stage < stages; ++stage)
    schedules.push_back(interleaved_one_forward_one_backward(stages, chunks, stage, micro_batches));
  return schedules;
}

std::vector<int> interleaved_bounds(int stages, int chunks, int micro_batches) {
  std::vector<int> in_flight;
  for (int stage = 0; stage < stages; ++stage)
    in_flight.push_back(most_in_flight_interleaved(stages, chunks, stage, micro_batches));
  return in_flight;
}

TEST(PipelineScheduleTest, InterleavedHoldsForAllSizes) {
  for (int stages = 2; stages <= 8; ++stages) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      for (int micro_batches = stages; micro_batches <= 4 * stages; micro_batches += stages) {
        SCOPED_TRACE(::testing::Message() << stages << " stages, " << chunks << " chunks, " << micro_batches);
        std::vector<int> in_flight = interleaved_bounds(stages, chunks, micro_batches);
        const Schedules schedules = interleaved(stages, chunks, micro_batches);
        const Status status = check_pipeline(schedules, micro_batches, in_flight, chunks);
        EXPECT_TRUE(status.is_ok()) << status.message();
        // The bound is reached.
        --in_flight[0];
        EXPECT_THAT(check_pipeline(schedules, micro_batches, in_flight, chunks).message(),
                    HasSubstr("more in flight"));
      }
    }
  }
}

TEST(PipelineScheduleTest, InterleavedGoesThroughAChunkWithOneMicroBatchAStageAtATime) {
  std::vector<std::pair<int, int>> forwards;  // chunk, micro-batch
  for (const PipelineStep& step : interleaved_one_forward_one_backward(2, 2, 0, 4)) {
    if (step.action == PipelineAction::kForward) forwards.emplace_back(step.chunk, step.micro_batch);
  }
  EXPECT_THAT(forwards,
              ::testing::ElementsAre(std::pair(0, 0), std::pair(0, 1), std::pair(1, 0), std::pair(1, 1),
                                     std::pair(0, 2), std::pair(0, 3), std::pair(1, 2), std::pair(1, 3)));
}

TEST(PipelineScheduleTest, CheckerFindsChunksOutOfTurn) {
  // The first stage goes on with its second chunk before the last stage has sent anything.
  Schedules schedules = interleaved(2, 2, 2);
  std::erase_if(schedules[0], [](PipelineStep step) {
    return step.action == PipelineAction::kReceiveActivation && step.chunk == 1;
  });
  EXPECT_THAT(check_pipeline(schedules, 2, {4, 4}, 2).message(),
              HasSubstr("micro-batch 0 of chunk 1: forward without its activation"));
  schedules = interleaved(2, 2, 2);
  schedules[1].back().chunk = 2;
  EXPECT_THAT(check_pipeline(schedules, 2, {4, 4}, 2).message(), HasSubstr("no such chunk"));
  // A chunk that nobody runs.
  EXPECT_THAT(check_pipeline(interleaved(2, 1, 2), 2, {4, 4}, 2).message(),
              HasSubstr("backward without its gradient"));
  // Micro-batches that are no multiple of the stages.
  EXPECT_THAT(check_pipeline(interleaved(4, 3, 5), 5, {20, 20, 20, 20}, 3).message(),
              HasSubstr("no such micro-batch"));
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
