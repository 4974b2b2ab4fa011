// plan_export_test.cc: plans as command lines, and plans that the engine does not run.
#include "training/plan/output/plan_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/training/plan/examples.h"

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
  plan.replicas[1].stages[0].tensor_parallel = 2;
  EXPECT_THAT(check_engine_runs(plan).message(), HasSubstr("replica 2.stage 1.tensor_parallel: 2 given"));
}

}  // namespace
}  // namespace hdt::plan
