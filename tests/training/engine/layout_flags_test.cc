// layout_flags_test.cc: the flags' formats, and that each broken constraint is named with its difference.
#include "training/engine/layout_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hdt::training {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The main job: 2 replicas, 3 + 1 and 2 + 2 layers, twice the micro-batches on the first.
LayoutFlags main_job() {
  LayoutFlags flags;
  flags.world_size = 4;
  flags.num_layers = 4;
  flags.hetero_pipeline_stages = {{1, 3, 1, 1}, {2, 2, 2}};
  flags.use_tp_pp_dp_mapping = true;
  flags.micro_batch_size_per_dp = {1, 2, 1, 4};
  flags.num_micro_batches_per_dp = {1, 4, 1, 2};
  flags.global_batch_size = 16;
  return flags;
}

std::string error_of(const LayoutFlags& flags) {
  const Result<Layout> layout = make_layout(flags);
  EXPECT_FALSE(layout.is_ok());
  EXPECT_EQ(layout.status().code(), Code::kInvalidArgument);
  return layout.status().message();
}

TEST(LayoutFlagsTest, StagesPerReplica) {
  const Result<Layout> layout = make_layout(main_job());
  ASSERT_TRUE(layout.is_ok()) << layout.status().message();
  EXPECT_EQ(layout.value().replica(0).stage_layers, (std::vector<int>{3, 1}));
  EXPECT_EQ(layout.value().replica(1).stage_layers, (std::vector<int>{2, 2}));
  EXPECT_EQ(layout.value().replica(0).samples(), 8);
  EXPECT_EQ(layout.value().replica(1).micro_batch_size, 4);
  EXPECT_EQ(layout.value().rank_of({1, 0}), 2);
}

TEST(LayoutFlagsTest, StagesGivenOnceHoldForEveryReplica) {
  LayoutFlags flags = main_job();
  flags.hetero_pipeline_stages = {{1, 3, 1, 1}};
  const Result<Layout> layout = make_layout(flags);
  ASSERT_TRUE(layout.is_ok()) << layout.status().message();
  EXPECT_EQ(layout.value().num_replicas(), 2);
  EXPECT_EQ(layout.value().replica(1).stage_layers, (std::vector<int>{3, 1}));
}

TEST(LayoutFlagsTest, ReplicasMayDifferInStages) {
  LayoutFlags flags = main_job();
  flags.hetero_pipeline_stages = {{3, 2, 1, 1}, {1, 4}};
  const Result<Layout> layout = make_layout(flags);
  ASSERT_TRUE(layout.is_ok()) << layout.status().message();
  EXPECT_EQ(layout.value().replica(0).stages(), 3);
  EXPECT_EQ(layout.value().replica(1).stages(), 1);
}

TEST(LayoutFlagsTest, EvenSplitFromPipelineSize) {
  LayoutFlags flags;
  flags.world_size = 4;
  flags.num_layers = 6;
  flags.pipeline_model_parallel_size = 2;
  flags.micro_batch_size = 2;
  flags.global_batch_size = 12;
  const Result<Layout> layout = make_layout(flags);
  ASSERT_TRUE(layout.is_ok()) << layout.status().message();
  EXPECT_EQ(layout.value().replica(1).stage_layers, (std::vector<int>{3, 3}));
  EXPECT_EQ(layout.value().replica(1).num_micro_batches, 3);
}

// Stage 0 has chunks of 3 and 1 layers, stage 1 of 2 and 1; the other replica has one chunk a stage.
LayoutFlags chunked_job() {
  LayoutFlags flags;
  flags.world_size = 4;
  flags.num_layers = 7;
  flags.hetero_pipeline_stages = {{1, 3, 1, 1, 2, 1}, {2, 4, 3}};
  flags.virtual_stages_per_rank = {2, 1};
  flags.micro_batch_size = 1;
  return flags;
}

TEST(LayoutFlagsTest, ChunksAreGivenStageByStage) {
  const Result<Layout> layout = make_layout(chunked_job());
  ASSERT_TRUE(layout.is_ok()) << layout.status().message();
  EXPECT_EQ(layout.value().replica(0).stage_layers, (std::vector<int>{3, 2, 1, 1}));
  EXPECT_EQ(layout.value().replica(0).chunks, 2);
  EXPECT_EQ(layout.value().replica(0).stages(), 2);
  EXPECT_EQ(layout.value().replica(1).stage_layers, (std::vector<int>{4, 3}));
  EXPECT_EQ(layout.value().replica(1).chunks, 1);
}

TEST(LayoutFlagsTest, EvenSplitOverChunks) {
  LayoutFlags flags;
  flags.world_size = 2;
  flags.num_layers = 12;
  flags.pipeline_model_parallel_size = 2;
  flags.micro_batch_size = 1;
  flags.layers_per_virtual_stage = 2;
  LayoutFlags by_count = flags;
  by_count.layers_per_virtual_stage.reset();
  by_count.virtual_stages_per_rank = {3};
  for (const LayoutFlags& given : {flags, by_count}) {
    const Result<Layout> layout = make_layout(given);
    ASSERT_TRUE(layout.is_ok()) << layout.status().message();
    EXPECT_EQ(layout.value().replica(0).chunks, 3);
    EXPECT_EQ(layout.value().replica(0).stage_layers, (std::vector<int>{2, 2, 2, 2, 2, 2}));
  }
}

TEST(LayoutFlagsTest, WrongChunksAreNamed) {
  LayoutFlags flags = chunked_job();
  flags.hetero_pipeline_stages[0].pop_back();
  EXPECT_THAT(error_of(flags), HasSubstr("of replica 0: 1 stages of 2 chunks are announced at value 4, but 1 "
                                         "layer counts follow: 1 short"));
  flags = chunked_job();
  flags.virtual_stages_per_rank = {2, 1, 1};
  EXPECT_THAT(error_of(flags), HasSubstr("3 numbers, expected one for all replicas, or one for each "
                                         "--hetero-pipeline-stages, which is given 2 times"));
  flags.virtual_stages_per_rank.clear();
  flags.layers_per_virtual_stage = 1;
  EXPECT_THAT(error_of(flags), HasSubstr("exclude each other"));
  flags.hetero_pipeline_stages.clear();
  flags.pipeline_model_parallel_size = 1;
  flags.layers_per_virtual_stage = 2;
  EXPECT_THAT(error_of(flags),
              HasSubstr("--num-layers-per-virtual-pipeline-stage 2: a stage has 7 layers, which "
                        "is no multiple: 1 left over"));
}

TEST(LayoutFlagsTest, GlobalBatchDefaultsToOneMicroBatchEach) {
  LayoutFlags flags;
  flags.world_size = 3;
  flags.num_layers = 1;
  flags.micro_batch_size = 5;
  const Result<Layout> layout = make_layout(flags);
  ASSERT_TRUE(layout.is_ok()) << layout.status().message();
  EXPECT_EQ(layout.value().global_batch_size(), 15);
}

TEST(LayoutFlagsTest, NamesWhatIsBrokenAndByHowMuch) {
  LayoutFlags flags = main_job();
  flags.hetero_pipeline_stages[0] = {1, 3, 1, 2};
  EXPECT_THAT(error_of(flags), AllOf(HasSubstr("replica 0"), HasSubstr("sum to 5"), HasSubstr("1 too many")));

  flags = main_job();
  flags.hetero_pipeline_stages[1] = {3, 2, 2};
  EXPECT_THAT(error_of(flags), AllOf(HasSubstr("replica 1"), HasSubstr("3 stages"), HasSubstr("1 short")));

  flags = main_job();
  flags.pipeline_model_parallel_size = 3;
  EXPECT_THAT(error_of(flags), AllOf(HasSubstr("--pipeline-model-parallel-size is 3"), HasSubstr("1 short")));

  flags = main_job();
  flags.world_size = 5;
  EXPECT_THAT(error_of(flags), AllOf(HasSubstr("5 ranks"), HasSubstr("1 short")));

  flags = main_job();
  flags.micro_batch_size_per_dp = {2, 2, 1, 4};
  EXPECT_THAT(error_of(flags), AllOf(HasSubstr("--micro-batch-size-per-dp"), HasSubstr("1 too many")));

  flags = main_job();
  flags.num_micro_batches_per_dp = {1, 4, 1};
  EXPECT_THAT(error_of(flags), AllOf(HasSubstr("--num-micro-batches-per-dp"), HasSubstr("pairs")));

  flags = main_job();
  flags.global_batch_size = 20;
  EXPECT_THAT(error_of(flags), AllOf(HasSubstr("--global-batch-size is 20"), HasSubstr("4 short")));

  flags = main_job();
  flags.micro_batch_size = 2;
  EXPECT_THAT(error_of(flags), HasSubstr("exclude each other"));

  flags = main_job();
  flags.tensor_model_parallel_size = 2;
  EXPECT_THAT(error_of(flags), HasSubstr("--tensor-model-parallel-size 2"));

  flags = main_job();
  flags.num_micro_batches_per_dp.clear();
  EXPECT_THAT(error_of(flags),
              AllOf(HasSubstr("sum of the micro-batch sizes of all replicas, 6"), HasSubstr("4 left over")));
}

TEST(LayoutFlagsTest, OnlyTheFirstAndTheLastStageMayBeWithoutLayers) {
  LayoutFlags flags;
  flags.world_size = 3;
  flags.num_layers = 4;
  flags.micro_batch_size = 1;
  flags.hetero_pipeline_stages = {{3, 0, 4, 0}};
  const Result<Layout> layout = make_layout(flags);
  ASSERT_TRUE(layout.is_ok()) << layout.status().message();
  EXPECT_EQ(layout.value().units_of({0, 0}), (UnitRange{0, 1}));
  EXPECT_EQ(layout.value().units_of({0, 1}), (UnitRange{1, 5}));
  EXPECT_EQ(layout.value().units_of({0, 2}), (UnitRange{5, 6}));
  flags.hetero_pipeline_stages = {{3, 2, 0, 2}};
  EXPECT_THAT(error_of(flags), HasSubstr("stage 2 of 3 of the model has 0 layers, expected at least 1"));
}

TEST(LayoutFlagsTest, RefusesNumbersOutOfRange) {
  LayoutFlags flags = main_job();
  flags.num_layers = 0;
  EXPECT_THAT(error_of(flags), HasSubstr("--num-layers"));
  flags = main_job();
  flags.hetero_pipeline_stages[0] = {2, 5, -1};
  EXPECT_THAT(error_of(flags), HasSubstr("layers of a stage: -1"));
  flags = main_job();
  flags.hetero_pipeline_stages[0] = {-1, 4};
  EXPECT_THAT(error_of(flags), HasSubstr("number of stages: -1"));
  flags = main_job();
  flags.micro_batch_size_per_dp.clear();
  EXPECT_THAT(error_of(flags), HasSubstr("is required"));
}

TEST(LayoutFlagsTest, IndivisibleEvenSplit) {
  LayoutFlags flags;
  flags.world_size = 2;
  flags.num_layers = 5;
  flags.pipeline_model_parallel_size = 2;
  flags.micro_batch_size = 1;
  EXPECT_THAT(error_of(flags), AllOf(HasSubstr("--num-layers 5"), HasSubstr("1 left over")));
  flags.num_layers = 6;
  flags.world_size = 3;
  EXPECT_THAT(error_of(flags), AllOf(HasSubstr("3 ranks"), HasSubstr("1 left over")));
}

}  // namespace
}  // namespace hdt::training
