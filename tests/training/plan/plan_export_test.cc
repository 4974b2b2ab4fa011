// plan_export_test.cc: plans as command lines, and plans that the engine does not run.
#include "training/plan/output/plan_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/training/plan/examples.h"
#include "training/plan/convert/forms.h"
#include "training/plan/search/engine_limits.h"

namespace hdt::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PlanExport, MegatronFlagsGroupStagesByKindAndReplicasByValue) {
  Plan plan;
  plan.replicas = {{2, 4, {{1, "a", 1}, {2, "c", 1}, {1, "b", 1}}},
                   {2, 4, {{1, "a", 1}, {2, "c", 1}, {1, "b", 1}}},
                   {1, 2, {{1, "a", 1}, {2, "c", 1}, {1, "b", 1}}}};
  const MegatronFlags exported = megatron_flags(plan, example_cluster());
  EXPECT_EQ(exported.flags,
            "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 3 --num-layers 4 "
            "--hetero-pipeline-stages 2 1 2 1 1 --micro-batch-size-per-dp 2 2 1 1 "
            "--num-micro-batches-per-dp 2 4 1 2 --global-batch-size 18 --use-tp-pp-dp-mapping");
  EXPECT_THAT(exported.warnings, ElementsAre());
}

// The forks refuse --hetero-pipeline-stages beside --micro-batch-size-per-dp, so each is given only where
// needed.
TEST(PlanExport, FlagsThatForksRefuseTogetherAreNotGivenWithoutNeed) {
  Plan plan;
  plan.replicas = {{2, 4, {{3, "a", 1}, {1, "b", 1}}}, {2, 4, {{3, "a", 1}, {1, "b", 1}}}};
  EXPECT_EQ(megatron_flags(plan, example_cluster()).flags,
            "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 --num-layers 4 "
            "--hetero-pipeline-stages 1 3 1 1 --micro-batch-size 2 --global-batch-size 16 "
            "--use-tp-pp-dp-mapping");
  EXPECT_TRUE(check_runs_on(Engine::kMegatron, plan).is_ok());
  plan.replicas[1].micro_batches = 2;
  EXPECT_THAT(check_runs_on(Engine::kMegatron, plan).message(), HasSubstr("stages differ and so do micro-"));
  for (Replica& replica : plan.replicas) replica.stages = {{2, "a", 1}, {2, "b", 1}};
  EXPECT_EQ(megatron_flags(plan, example_cluster()).flags,
            "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 --num-layers 4 "
            "--micro-batch-size-per-dp 1 2 1 2 --num-micro-batches-per-dp 1 4 1 2 --global-batch-size 12 "
            "--use-tp-pp-dp-mapping");
  EXPECT_TRUE(check_runs_on(Engine::kMegatron, plan).is_ok());
  plan.replicas.push_back(plan.replicas[0]);
  plan.replicas[2].micro_batches = 1;
  EXPECT_THAT(check_runs_on(Engine::kMegatron, plan).message(), HasSubstr("at most 2"));
  plan.replicas.pop_back();
  for (Stage& stage : plan.replicas[1].stages) stage.tensor_parallel = 2;
  EXPECT_THAT(check_runs_on(Engine::kMegatron, plan).message(), HasSubstr("one degree"));
  EXPECT_THAT(check_runs_on(Engine::kHdtTrain, plan).message(), HasSubstr("expected 1"));
  EXPECT_TRUE(check_runs_on(Engine::kAny, plan).is_ok());
}

TEST(PlanExport, WhatMegatronForksCannotSayIsWarnedOf) {
  Plan plan = example_plan();
  plan.replicas[1].stages[1].tensor_parallel = 2;
  const MegatronFlags exported = megatron_flags(plan, example_cluster());
  EXPECT_THAT(exported.flags, HasSubstr("--hetero-pipeline-stages 1 3 1 1 "));
  EXPECT_THAT(
      exported.warnings,
      ElementsAre(HasSubstr("replica 2 is split into 2 + 2 layers, replica 1 into 3 + 1"),
                  HasSubstr("replica 2 has a stage of tensor-parallel degree 2, the first stage has 1")));
}

TEST(PlanExport, RecomputationIsThatOfTheStageWithMost) {
  Plan plan;
  plan.replicas = {{1, 4, {{3, "a", 1, 2}, {1, "b", 1, 1}}}};
  const MegatronFlags exported = megatron_flags(plan, example_cluster());
  EXPECT_THAT(exported.flags,
              HasSubstr(" --recompute-granularity full --recompute-method block --recompute-num-layers 2"));
  EXPECT_THAT(exported.warnings, ElementsAre(HasSubstr("stages recompute 1 to 2 layers")));
  EXPECT_TRUE(check_engine_runs(plan).is_ok());
}

TEST(PlanExport, RecomputedAttentionIsThatOfAllLayers) {
  Plan plan;
  plan.replicas = {{1, 4, {{3, "a", 1, 3}, {1, "b", 1, 1}}}};
  for (Stage& stage : plan.replicas[0].stages) stage.attention_only = true;
  const MegatronFlags all = megatron_flags(plan, example_cluster());
  EXPECT_THAT(all.flags, HasSubstr(" --recompute-granularity selective"));
  EXPECT_THAT(all.flags, testing::Not(HasSubstr("--recompute-method")));
  EXPECT_THAT(all.warnings, testing::IsEmpty());
  plan.replicas[0].stages[0].recomputed_layers = 2;
  const MegatronFlags some = megatron_flags(plan, example_cluster());
  EXPECT_THAT(some.flags, HasSubstr(" --recompute-granularity selective"));
  EXPECT_THAT(some.warnings, ElementsAre(HasSubstr("the attention of 1 to 2 layers")));
  // Whole layers save what attention saves.
  plan.replicas[0].stages[1].attention_only = false;
  const MegatronFlags mixed = megatron_flags(plan, example_cluster());
  EXPECT_THAT(mixed.flags,
              HasSubstr(" --recompute-granularity full --recompute-method block --recompute-num-layers 2"));
  EXPECT_THAT(mixed.warnings, ElementsAre(HasSubstr("others attention only"), HasSubstr("1 to 2 layers")));
  EXPECT_TRUE(check_engine_runs(plan).is_ok());
}

TEST(PlanExport, ConvertedFlagsOfRecomputedAttentionComeBack) {
  const std::string flags =
      "--hetero-pipeline-stages 2 3 1 --micro-batch-size 1 --recompute-granularity selective";
  const auto attention = read_flag_form(Form::kMegatronFork, flags, {}, {.ranks = 2});
  ASSERT_TRUE(attention.is_ok()) << attention.status().message();
  EXPECT_THAT(attention.value().warnings, testing::IsEmpty());
  const Plan plan = plan_of_strategy(attention.value().value).value();
  for (const Stage& stage : plan.replicas[0].stages) {
    EXPECT_EQ(stage.recomputed_layers, stage.layers);
    EXPECT_TRUE(stage.attention_only);
  }
  const auto written = write_form(Form::kMegatronFork, strategy_of_plan(plan, nullptr).value().value);
  EXPECT_THAT(written.value().value, HasSubstr(" --recompute-granularity selective\n"));
  const auto some =
      read_flag_form(Form::kMegatronFork, flags + " --recompute-num-layers 2", {}, {.ranks = 2});
  EXPECT_THAT(some.value().warnings,
              ElementsAre(HasSubstr("--recompute-granularity selective with 2 layers is left out")));
}

TEST(PlanExport, OneRankAStageOnItsNode) {
  Plan plan;
  plan.replicas = {{1, 4, {{3, "a", 1}, {1, "a", 1}}}, {1, 2, {{2, "c", 1}, {2, "a", 1}}}};
  EXPECT_EQ(mpirun_command(plan, "my plan.toml", {"--text", "it's"}),
            "mpirun --bind-to none \\\n"
            "  -np 2 --host a:3 hdt-train --plan 'my plan.toml' --text 'it'\\''s' : \\\n"
            "  -np 1 --host c:1 hdt-train --plan 'my plan.toml' --text 'it'\\''s' : \\\n"
            "  -np 1 --host a:3 hdt-train --plan 'my plan.toml' --text 'it'\\''s'");
}

TEST(PlanExport, WhatTheEngineDoesNotRunIsNamed) {
  EXPECT_TRUE(check_engine_runs(example_plan()).is_ok());
  Plan plan = example_plan();
  for (const ScheduleKind kind : kScheduleKinds) {
    plan.runtime.schedule = kind;
    EXPECT_TRUE(check_engine_runs(plan).is_ok()) << schedule_name(kind);
  }
  plan.runtime.overlap_gradients = false;
  EXPECT_THAT(check_engine_runs(plan).message(), HasSubstr("overlap_gradients: false"));
  plan = example_plan();
  plan.runtime.background_send_bytes = 1;
  EXPECT_THAT(check_engine_runs(plan).message(), HasSubstr("background_send_bytes"));
  plan = example_plan();
  plan.runtime.lockstep_exchange = true;
  EXPECT_THAT(check_engine_runs(plan).message(), HasSubstr("lockstep_exchange: given"));
  plan = example_plan();
  plan.replicas[1].stages[0].tensor_parallel = 2;
  EXPECT_THAT(check_engine_runs(plan).message(), HasSubstr("replica 2.stage 1.tensor_parallel: 2 given"));
}

}  // namespace
}  // namespace hdt::plan
